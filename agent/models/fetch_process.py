"""The fetching process: downloads one model's files, reports its progress, and ends.

The process may be killed at any moment: arrived bytes stay, and the next process resumes from
them.
"""

import errno
import math
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import httpx2

from ...shared.models.sources import MAX_SOURCE, LocalFile, WebFile, check_http, parse_source
from .. import child
from ..gguf.header import Value
from .downloader import TIMEOUT, Downloader, Progress, RemoteFile, ReportProgress, sha256_of
from .fetch_protocol import (
    FETCH_ORDERS,
    FETCH_REPORTS,
    Arriving,
    Fetched,
    FetchOrder,
    FetchReport,
    Headed,
    Refused,
)
from .file_lock import FileLock
from .located import Located, locate_on_host, locate_on_web
from .models_folder import ModelsFolder, Record, part_of
from .port import FetchError, RemoteModel
from .remote_header import Budget, read_remote_header

ShowHeader = Callable[[RemoteModel], None]

CHECK_EVERY = 0.5
"""Seconds between two checks of the size and the lock of a file that another agent downloads."""

MAX_HEADED = 2**21
"""Maximum bytes of a header report. The largest models' headers without vocabulary are smaller."""

MAX_TRACEBACK = 20_000
"""Maximum characters of a traceback; the last ones are kept."""

MAX_MESSAGE = 2000
"""Maximum characters of a message, and of a hint."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def main() -> None:
    """Carry out the order in the first line of standard input; end when standard input does."""
    child.work_aside()
    orders, reports = child.orders(), child.reports()
    line = orders.readline()
    if not line:
        return
    goes_on = threading.Event()
    agent_gone = child.obey(orders, lambda _: goes_on.set())
    carry_out(FETCH_ORDERS.decode(line), reports, agent_gone.join, goes_on.wait)


class Writable(Protocol):
    """The target of reports: a binary file without a buffer."""

    def write(self, data: bytes, /) -> object: ...


def carry_out(
    fetch: FetchOrder,
    reports: Writable,
    until_leased: Callable[[], None],
    until_told: Callable[[], object],
) -> None:
    """Fetch, and report to `reports`. The files stay leased until `until_leased` returns.

    After `Headed`, the download waits until `until_told` returns.
    """

    def show(remote: RemoteModel) -> None:
        report = Headed(remote=remote)
        if len(FETCH_REPORTS.encode(report)) <= MAX_HEADED:
            _write(reports, report)
            until_told()

    try:
        folder = ModelsFolder(fetch.root, fetch.limit)
        _check_http(fetch)
        show_header = show if fetch.shows_header else None
        with fetched(
            fetch.source,
            fetch.sha256,
            folder,
            report=_reporter(reports),
            show_header=show_header,
        ) as found:
            _write(reports, found)
            until_leased()
    except FetchError as error:
        _write(reports, _refused(error))
    except Exception as error:
        # The boundary: the agent logs the traceback and goes on.
        message = f"the fetch failed: {error!r}"[:MAX_MESSAGE]
        _write(
            reports,
            Refused(
                code="fetch_failed",
                message=message,
                traceback=traceback.format_exc()[-MAX_TRACEBACK:],
            ),
        )


def _check_http(fetch: FetchOrder) -> None:
    """Raise `FetchError` for a plain-HTTP source that is not allowed.

    The balancer has checked the source already; the agent does not rely on that.
    """
    try:
        check_http(fetch.source, fetch.http_hosts)
    except ValueError as error:
        raise FetchError("denied", f"the source {fetch.source[:MAX_SOURCE]} {error}") from error


def _reporter(reports: Writable) -> ReportProgress:
    def report(file: str, size: int, total: int | None) -> None:
        _write(reports, Arriving(file=file, bytes=size, total=total))

    return report


def _refused(error: FetchError) -> Refused:
    """Return the report of `error`, with bounded texts.

    Servers influence the texts, and every balancer gets them.
    """
    return Refused(
        code=error.code, message=error.message[:MAX_MESSAGE], hint=error.hint[:MAX_MESSAGE]
    )


def _write(reports: Writable, report: FetchReport) -> None:
    reports.write(FETCH_REPORTS.encode(report))


@contextmanager
def fetched(
    source: str,
    sha256: str | None,
    folder: ModelsFolder,
    *,
    report: ReportProgress,
    show_header: ShowHeader | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Fetched]:
    """Fetch the files of `source`. Inside the block they are not evicted. Raises `FetchError`.

    `show_header` is called before the download, if the header can be read.
    """
    with ExitStack() as held:
        try:
            found = _fetch(
                source,
                sha256,
                folder,
                held=held,
                report=report,
                show_header=show_header,
                sleep=sleep,
            )
        except OSError as error:
            raise broken(error, folder.root) from error
        yield found


def _fetch(
    source: str,
    sha256: str | None,
    folder: ModelsFolder,
    *,
    held: ExitStack,
    report: ReportProgress,
    show_header: ShowHeader | None,
    sleep: Callable[[float], None],
) -> Fetched:
    parsed = parse_source(source)
    if isinstance(parsed, LocalFile):
        return _found(locate_on_host(parsed, sha256))
    folder.create()
    if isinstance(parsed, WebFile):
        located = locate_on_web(parsed, sha256, folder)
        _show_header(located, show_header)
        _bring(located, folder, held, report, sleep)
        return _found(located)
    # Its import takes half a second, which other sources need not wait for.
    from . import hub

    located = hub.locate(parsed, sha256, folder)
    _show_header(located, show_header)
    _bring(located, folder, held, report, sleep)
    hub.finish(parsed, located)
    return _found(located)


def _show_header(located: Located, show: ShowHeader | None) -> None:
    """Show the header of a model that will be downloaded, if its parts can be read remotely.

    A resumed download shows no header: the header was shown when the download began.
    """
    missing = [remote.file for remote in located.remotes if not remote.file.exists()]
    if show is None or not missing or any(part_of(file).exists() for file in missing):
        return
    try:
        with httpx2.Client(timeout=TIMEOUT) as client:
            header, num_bytes = read_remote_header(client, located.remotes[0], Budget())
    except FetchError:
        return  # if there is something wrong with the file, its download says so
    sizes = [num_bytes, *(remote.size or 0 for remote in located.remotes[1:])]
    finite = {key: value for key, value in header.metadata.items() if _is_finite(value)}
    show(RemoteModel(replace(header, metadata=finite), sum(sizes), located.others))


def _is_finite(value: Value) -> bool:
    """Return whether `value` has only finite numbers; reports cannot contain other numbers."""
    if isinstance(value, tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _found(located: Located) -> Fetched:
    size = sum(path.stat().st_size for path in located.paths)
    return Fetched(paths=located.paths, kept=located.kept, bytes=size, others=located.others)


def _bring(
    located: Located,
    folder: ModelsFolder,
    held: ExitStack,
    report: ReportProgress,
    sleep: Callable[[float], None],
) -> None:
    """Lease all files, and download the missing ones."""
    for file in located.kept:
        held.enter_context(folder.use(file))
    progress = Progress(report, time.monotonic)
    with httpx2.Client(timeout=TIMEOUT) as client:
        bringer = _Bringer(folder, Downloader(folder, client, progress, sleep), progress, sleep)
        bringer.bring(located.remotes)


class _Bringer:
    """Downloads missing files one after the other, each by one process at a time."""

    def __init__(
        self,
        folder: ModelsFolder,
        downloader: Downloader,
        progress: Progress,
        sleep: Callable[[float], None],
    ) -> None:
        self._folder = folder
        self._downloader = downloader
        self._progress = progress
        self._sleep = sleep

    def bring(self, remotes: tuple[RemoteFile, ...]) -> None:
        sizes = [remote.size for remote in remotes]
        if all(size is not None for size in sizes):
            self._progress.expect(sum(size or 0 for size in sizes))
        self._make_room(remotes)
        for remote in remotes:
            if not self._is_here(remote):
                self._bring_one(remote)
            self._progress.whole(remote.file.stat().st_size)

    def _make_room(self, remotes: tuple[RemoteFile, ...]) -> None:
        """Make room for all files together, so that the first file is not downloaded in vain."""
        missing = {
            remote.file: remote.size
            for remote in remotes
            if remote.size is not None and not remote.file.exists()
        }
        if missing:
            self._folder.make_room(missing)

    def _bring_one(self, remote: RemoteFile) -> None:
        with self._turn(remote):
            if not self._is_here(remote) and not self._is_right(remote):
                self._downloader.download(remote)

    def _turn(self, remote: RemoteFile) -> FileLock:
        """Wait until no other process downloads `remote`, and report the progress until then."""
        lock = self._folder.fetch_lock(remote.file)
        while (turn := FileLock.try_exclusive(lock)) is None:
            total = self._folder.record(remote.file).total
            self._progress.arrived(remote.called, _size(part_of(remote.file)), total)
            self._sleep(CHECK_EVERY)
        return turn

    def _is_here(self, remote: RemoteFile) -> bool:
        if not remote.file.exists():
            return False
        if remote.is_content_named or remote.sha256 is None:
            return True
        return self._folder.record(remote.file).sha256 == remote.sha256

    def _is_right(self, remote: RemoteFile) -> bool:
        """Hash an existing file if it was never hashed; return whether it is the right file.

        The caller holds the file's `fetch` lock.
        """
        if not remote.file.exists() or self._folder.record(remote.file).sha256 is not None:
            return False
        record = Record(sha256=sha256_of(remote.file), size=_size(remote.file))
        self._folder.write_record(remote.file, record)
        return record.sha256 == remote.sha256


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def broken(error: OSError, folder: os.PathLike[str]) -> FetchError:
    """Return the error that explains a system error for files in `folder`."""
    where = error.filename or folder
    said = error.strerror or str(error)
    if error.errno in _FULL:
        return FetchError(
            "disk_full",
            f"{where}: {said}",
            "free space there, or choose another --models-dir",
        )
    if error.errno == errno.EFBIG:
        return FetchError(
            "too_large",
            f"{where}: {said}",
            "the file system or a limit of the process forbids files of this size; choose "
            "another --models-dir",
        )
    if error.errno in _DENIED:
        return FetchError(
            "denied", f"{where}: {said}", "let the agent's user read the file, or write there"
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return FetchError("not_found", f"{where}: {said}", "check the path on the agent's host")
    return FetchError("fetch_failed", f"{where}: {said}")


if __name__ == "__main__":
    main()
