"""Downloads over HTTP that resume at the last byte of an earlier attempt or process."""

import hashlib
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx2

from ...shared.log import context
from ...shared.models.sources import is_loopback
from ..gguf.header import MAGIC
from .gguf_check import check_start
from .models_folder import ModelsFolder, Record, part_of
from .port import FetchError
from .retry_pauses import Retries

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file to download.

    `called` is its name for people, without secrets of the URL. `file` is its path in the folder.
    `size` and `sha256` are set if they are known before the download. `is_content_named`: the name
    of `file` is derived from its content, so an existing file is correct.
    """

    url: str
    called: str
    file: Path
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    size: int | None = None
    sha256: str | None = None
    is_content_named: bool = False
    is_on_hub: bool = False


ReportProgress = Callable[[str, int, int | None], None]
"""Called with the current file, the number of bytes of the model so far, and the total bytes."""

INTERVAL = 0.25
"""Minimum seconds between two reports."""


class Progress:
    """The progress of all files of a model, which are downloaded one after the other."""

    def __init__(self, report: ReportProgress, now: Callable[[], float]) -> None:
        self._report = report
        self._now = now
        self._before = 0
        self._total: int | None = None
        self._last = float("-inf")

    def expect(self, total: int | None) -> None:
        """Set the size of all files together."""
        self._total = total

    def arrived(self, file: str, size: int, file_size: int | None = None) -> None:
        """Report that `size` bytes of `file` have arrived. Without a total, `file_size` is the
        total.
        """
        if self._now() - self._last >= INTERVAL:
            self._last = self._now()
            self._report(file, self._before + size, self._total or file_size)

    def whole(self, size: int) -> None:
        """Count the current file, of `size` bytes, as complete."""
        self._before += size


TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
"""Maximum silence of a server, in seconds."""

_ROOM_AHEAD = 64 * 2**20
"""The download was interrupted; another attempt may resume it.

`wait` is the pause in seconds that the server asks for.
"""


_BUFFER = 1 << 17
_CHUNK = 1 << 20


class PartFile:
    """A partly downloaded `file`: appended to, hashed as it grows, renamed once it is complete.

    After a crash at any moment there is a part with the file's first bytes, or the whole file. The
    hash includes the bytes of an earlier download.

    Only the holder of the file's `fetch` lock may open the part. Methods raise `OSError`.
    """

    def __init__(self, file: Path, *, is_hashed: bool) -> None:
        self._file = file
        self._path = part_of(file)
        self._is_hashed = is_hashed
        file.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("ab", buffering=_BUFFER)
        self.size = self._path.stat().st_size
        self._hash = hash_of(self._path) if is_hashed else None

    def append(self, data: bytes) -> None:
        self._stream.write(data)
        self.size += len(data)
        if self._hash is not None:
            self._hash.update(data)

    def start(self, length: int) -> bytes:
        """Return the first `length` bytes, or fewer if the file is shorter."""
        self._stream.flush()
        with self._path.open("rb") as file:
            return file.read(length)

    def flush(self) -> None:
        """Write buffered bytes to the system, so that a killed process does not lose them."""
        self._stream.flush()

    def restart(self) -> None:
        """Drop all bytes so far."""
        self._stream.flush()
        self._stream.truncate(0)
        self.size = 0
        self._hash = hash_of(self._path) if self._is_hashed else None

    def sha256(self) -> str | None:
        return None if self._hash is None else self._hash.hexdigest()

    def finish(self) -> None:
        """Write the complete file to disk under its own name."""
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._path.replace(self._file)
        descriptor = os.open(self._file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hash_of(path: Path) -> "hashlib._Hash":
    """Return the running SHA-256 of the file `path`; `update` continues it. Raises `OSError`."""
    running = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            running.update(chunk)
    return running


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the file `path`. Raises `OSError`."""
    return hash_of(path).hexdigest()


class Cut(Exception):
    """The download was interrupted; another attempt may resume it.

    `wait` is the pause in seconds that the server asks for.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFacts:
    """The facts of an answer. `total` is the size of the whole file in bytes.

    `first_byte` is the position in the file at which the body begins. `validator` goes into
    `If-Range`: a strong ETag, or the date of the last change (RFC 9110, 13.1.5). `retry_after` is
    in seconds.
    """

    status: int
    total: int | None = None
    first_byte: int | None = None
    validator: str | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str]) -> Self:
        """Read the facts from a status and `headers`, whose names are case-insensitive."""
        first_byte, total = _range(headers.get("content-range", ""))
        if status == 200:
            total = _number(headers.get("content-length"))
        return cls(
            status=status,
            total=total,
            first_byte=first_byte,
            validator=_validator(headers),
            retry_after=_number(headers.get("retry-after")),
        )


MAX_REDIRECTS = 10


TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of answers after which the same request may succeed."""


class Downloader:
    """Downloads files into the folder, one at a time."""

    def __init__(
        self,
        folder: ModelsFolder,
        client: httpx2.Client,
        progress: Progress,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._folder = folder
        self._client = client
        self._progress = progress
        self._sleep = sleep
        self._jitter = jitter

    def download(self, remote: RemoteFile) -> None:
        """Download `remote` completely and check it. The caller holds its `fetch` lock.

        Raises `FetchError`, and `OSError` if the folder cannot be written.
        """
        with PartFile(remote.file, is_hashed=remote.sha256 is not None) as part:
            self._keep_only_what_can_be_resumed(remote, part)
            is_resumed = part.size > 0
            self._complete(remote, part)
            if is_resumed and not _is_right(remote, part):
                logger.warning(
                    "a resumed download has the wrong contents, so it starts again",
                    extra=context(file=remote.called),
                )
                part.restart()
                self._complete(remote, part)
            self._accept(remote, part)

    def _keep_only_what_can_be_resumed(self, remote: RemoteFile, part: PartFile) -> None:
        is_checked = remote.sha256 is not None or self._folder.record(remote.file).validator
        is_too_long = remote.size is not None and part.size > remote.size
        if part.size and (is_too_long or not is_checked):
            part.restart()

    def _complete(self, remote: RemoteFile, part: PartFile) -> None:
        """Try until the whole file has arrived."""
        retries = Retries()
        while part.size == 0 or part.size != self._size(remote):
            before = part.size
            try:
                return self._attempt(remote, part)
            except Cut as cut:
                part.flush()
                pause = retries.next_pause(
                    made_progress=part.size > before, jitter=self._jitter(), asked=cut.wait
                )
                if pause is None:
                    raise unreachable(remote, cut) from cut
                logger.warning(
                    "a download is cut",
                    extra=context(file=remote.called, bytes=part.size, reason=str(cut)),
                )
                self._sleep(pause)
        return None

    def _size(self, remote: RemoteFile) -> int | None:
        return self._folder.record(remote.file).total if remote.size is None else remote.size

    def _attempt(self, remote: RemoteFile, part: PartFile) -> None:
        with self._answer(remote, self._resuming(remote, part)) as response:
            facts = ResponseFacts.of(response.status_code, response.headers)
            self._check_answer(remote, part, facts)
            total = facts.total if facts.total is not None else remote.size
            self._make_room(remote, part, total)
            for chunk in response.iter_raw():
                part.append(chunk)
                self._check_chunk(remote, part, len(chunk), total)
        if total is not None and part.size < total:
            raise Cut(f"it ends after {part.size} of {total} bytes")

    def _resuming(self, remote: RemoteFile, part: PartFile) -> dict[str, str]:
        """Return the headers that ask for the missing bytes."""
        headers = {**remote.headers, "accept-encoding": "identity"}
        if part.size:
            headers["range"] = f"bytes={part.size}-"
            if validator := self._folder.record(remote.file).validator:
                headers["if-range"] = validator
        return headers

    @contextmanager
    def _answer(self, remote: RemoteFile, headers: dict[str, str]) -> Iterator[httpx2.Response]:
        """Yield the answer to a GET, after redirects; its body is not read yet."""
        url = remote.url
        try:
            for _ in range(MAX_REDIRECTS + 1):
                with self._client.stream("GET", url, headers=headers) as response:
                    if not response.has_redirect_location:
                        yield response
                        return
                    target = next_url(url, response.headers["location"])
                    url, headers = target, headers_for(url, target, headers)
        except httpx2.TransportError as error:
            raise Cut(str(error) or type(error).__name__) from error
        except (RedirectError, httpx2.InvalidURL) as error:
            raise unreachable(remote, error) from error
        raise unreachable(remote, RedirectError(f"more than {MAX_REDIRECTS} redirects"))

    def _check_answer(self, remote: RemoteFile, part: PartFile, facts: ResponseFacts) -> None:
        """Raise `Cut` or `FetchError` unless the body continues `part`, or is the whole file."""
        if facts.status in TRANSIENT:
            raise Cut(f"the server answers with status {facts.status}", facts.retry_after)
        if facts.status == 416 and part.size:
            part.restart()
            raise Cut("the server does not have the requested range")
        if facts.status not in (200, 206):
            raise refused(remote, facts.status)
        is_next = facts.status == 206 and facts.first_byte == part.size
        is_same = part.size == 0 or facts.total in (self._folder.record(remote.file).total, None)
        if facts.status == 206 and not (is_next and is_same):
            part.restart()
            raise Cut("the server sends another range than was requested")
        if facts.status == 200 and part.size:
            part.restart()
        _check_size(remote, facts.total)
        if part.size == 0:
            record = Record(validator=facts.validator, total=facts.total)
            self._folder.write_record(remote.file, record)

    def _check_chunk(
        self, remote: RemoteFile, part: PartFile, gained: int, total: int | None
    ) -> None:
        """After each chunk, check that the file is a model and that there is still room."""
        before = part.size - gained
        if before < len(MAGIC) <= part.size:
            self._check_start(remote, part)
        if before // _ROOM_AHEAD != part.size // _ROOM_AHEAD:
            part.flush()
            self._make_room(remote, part, total)
        self._progress.arrived(remote.called, part.size, total)

    def _make_room(self, remote: RemoteFile, part: PartFile, total: int | None) -> None:
        """Make room for the whole file; if its size is unknown, for the next bytes."""
        ahead = part.size + _ROOM_AHEAD if total is None else total
        self._folder.make_room({remote.file: ahead})

    def _check_start(self, remote: RemoteFile, part: PartFile) -> None:
        try:
            check_start(part.start(len(MAGIC) * 4), remote.called)
        except FetchError:
            part.restart()
            raise

    def _accept(self, remote: RemoteFile, part: PartFile) -> None:
        """Rename the file to its final name if its content is correct; otherwise delete it."""
        self._check_start(remote, part)
        if not _is_right(remote, part):
            found = part.sha256()
            part.restart()
            raise _wrong(remote, found)
        part.finish()
        self._folder.write_record(remote.file, Record(sha256=part.sha256(), size=part.size))


def unreachable(remote: RemoteFile, reason: Exception) -> FetchError:
    return FetchError(
        "unreachable",
        f"{remote.called} cannot be downloaded: {reason}",
        "check the host's network, proxy (HTTPS_PROXY) and the source; the agent will try again",
    )


def _check_size(remote: RemoteFile, total: int | None) -> None:
    if remote.size is not None and total is not None and total != remote.size:
        raise FetchError(
            "torn",
            f"{remote.called} should have {remote.size} bytes, but the server has {total}",
            "a mirror or proxy may serve an old or cut file; check it, or name another source",
        )


def _is_right(remote: RemoteFile, part: PartFile) -> bool:
    return part.sha256() == remote.sha256


def _wrong(remote: RemoteFile, found: str | None) -> FetchError:
    return FetchError(
        "wrong_checksum",
        f"{remote.called} has the SHA-256 {found}, not {remote.sha256}",
        "check the source and its sha256; the downloaded bytes are deleted",
    )


TOKEN_HINT = (
    "accept the model's conditions on its page, then set HF_TOKEN on the agent's host to a token "
    "that may read it"
)


def refused(remote: RemoteFile, status: int) -> FetchError:
    """Return the error for `status`, which no retry can change."""
    answer = f"{remote.called}: the server answers with status {status}"
    if status in (401, 403) and remote.is_on_hub:
        return FetchError("gated", answer, TOKEN_HINT)
    if status in (401, 403):
        return FetchError(
            "denied", answer, "the agent sends no credentials; use a URL that needs none"
        )
    if status in (404, 410):
        return FetchError("not_found", answer, "check the source")
    return FetchError("unreachable", answer, "check the source and the server's log")


def _range(text: str) -> tuple[int | None, int | None]:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None, None
    return int(found[1]), None if found[2] == "*" else int(found[2])


def _number(text: str | None) -> int | None:
    """Return a number, or `None` if `text` is no number; `Retry-After` may be a date."""
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 18
    return int(text) if text is not None and is_number else None


def _validator(headers: Mapping[str, str]) -> str | None:
    etag = headers.get("etag", "")
    if etag.startswith('"'):
        return etag
    return None if etag else headers.get("last-modified")


_SECRET = {"authorization", "cookie"}


class RedirectError(Exception):
    """A server redirected the download to a forbidden address."""


def next_url(url: str, location: str) -> str:
    """Return the address to which `location`, in the answer of `url`, redirects.

    Allowed are `https` addresses, the same origin, and from loopback also loopback. A redirect
    that another machine sends without TLS may not change the host, since anybody on the path could
    forge it. Raises `RedirectError`.
    """
    try:
        target = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(target)
        is_local = is_loopback(old.hostname) and is_loopback(new.hostname)
        is_near = _origin(old) == _origin(new) or (is_local and new.scheme in ("http", "https"))
    except ValueError as error:
        raise RedirectError(f"{_shown(url)} redirects to an unreadable address") from error
    if not new.hostname or not (new.scheme == "https" or is_near):
        raise RedirectError(f"{_shown(url)} redirects to {_shown(target)}, which is not https://")
    is_open = old.scheme == "http" and not is_loopback(old.hostname)
    if is_open and new.hostname != old.hostname:
        raise RedirectError(
            f"{_shown(url)}, without TLS, redirects to another host, {new.hostname}"
        )
    return target


def headers_for(url: str, target: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return `headers` for `target`, without secrets if `target` is another host."""
    if _origin(urlsplit(url)) == _origin(urlsplit(target)):
        return dict(headers)
    return {name: value for name, value in headers.items() if name.lower() not in _SECRET}


def _shown(url: str) -> str:
    """Return `url` without its query, which may contain a signature."""
    return url.partition("?")[0]


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or default
