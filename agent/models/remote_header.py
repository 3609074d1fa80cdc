"""Reads the header of a remote GGUF file with range requests.

The first piece is large enough for most headers without a vocabulary; later pieces are larger.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import httpx2

from ..gguf.header import GgufHeader, HeaderError, read_header
from .downloader import (
    MAX_REDIRECTS,
    RedirectError,
    RemoteFile,
    ResponseFacts,
    headers_for,
    next_url,
    refused,
    unreachable,
)
from .port import FetchError

FIRST_PIECE = 2**17
LAST_PIECE = 2**22
MAX_BYTES = 64 * 2**20
"""Maximum bytes of headers to request; the largest vocabularies take about 20 MB."""


@dataclass(slots=True)
class Budget:
    """The bytes that the headers of a model's files may still take together."""

    left: int = MAX_BYTES


def read_remote_header(
    client: httpx2.Client, remote: RemoteFile, budget: Budget
) -> tuple[GgufHeader, int]:
    """Return the header of `remote`, and the bytes of the whole file. Raises `FetchError`."""
    start = RemoteStart(client, remote, budget)
    try:
        return read_header(start), start.total
    except HeaderError as error:
        raise FetchError(
            "not_a_gguf", f"{remote.called}: {error}", "name a GGUF file of a model"
        ) from error


class RemoteStart:
    """The first bytes of `remote`, read once and in order; no bytes are kept.

    `total` is the size of the whole file in bytes, known after the first read.
    """

    def __init__(self, client: httpx2.Client, remote: RemoteFile, budget: Budget) -> None:
        self._client = client
        self._remote = remote
        self._budget = budget
        self._piece = b""
        self._at = 0
        self._num_fetched = 0
        self._next_size = FIRST_PIECE
        self._validator: str | None = None
        self.total = 0

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes; fewer at the end of the file. Raises `FetchError`."""
        while len(self._piece) - self._at < count and not self._is_whole:
            self._piece = self._piece[self._at :] + self._fetch()
            self._at = 0
        found = self._piece[self._at : self._at + count]
        self._at += len(found)
        return found

    @property
    def _is_whole(self) -> bool:
        return 0 < self.total <= self._num_fetched

    def _fetch(self) -> bytes:
        size = min(self._next_size, self._budget.left)
        if size <= 0:
            raise FetchError(
                "too_large",
                f"{self._remote.called}: the headers of the model's files have more than "
                f"{MAX_BYTES} bytes",
                "name a GGUF file of a model",
            )
        self._next_size = min(2 * self._next_size, LAST_PIECE)
        first = self._num_fetched
        headers = {
            **self._remote.headers,
            "accept-encoding": "identity",
            "range": f"bytes={first}-{first + size - 1}",
        }
        try:
            piece = self._answer(headers, size)
        except (httpx2.TransportError, httpx2.InvalidURL, RedirectError) as error:
            raise unreachable(self._remote, error) from error
        self._num_fetched += len(piece)
        self._budget.left -= len(piece)
        return piece

    def _answer(self, headers: dict[str, str], size: int) -> bytes:
        """Return the requested piece, after redirects."""
        url = self._remote.url
        for _ in range(MAX_REDIRECTS + 1):
            with self._get(url, headers) as response:
                if not response.has_redirect_location:
                    return self._body(response, size)
                target = next_url(url, response.headers["location"])
                url, headers = target, headers_for(url, target, headers)
        raise RedirectError(f"more than {MAX_REDIRECTS} redirects")

    def _get(self, url: str, headers: dict[str, str]) -> AbstractContextManager[httpx2.Response]:
        return self._client.stream("GET", url, headers=headers)

    def _body(self, response: httpx2.Response, size: int) -> bytes:
        """Return the requested bytes, or fewer at the end of the file; read no further bytes."""
        facts = ResponseFacts.of(response.status_code, response.headers)
        if facts.status == 200:
            raise self._useless("the server sends whole files only, not their beginnings")
        if facts.status != 206:
            raise refused(self._remote, facts.status)
        if facts.first_byte != self._num_fetched or facts.total is None:
            raise self._useless("the server sends another range than was requested")
        if self._num_fetched and (facts.total, facts.validator) != (self.total, self._validator):
            raise self._useless("it changed while its header was read")
        self.total, self._validator = facts.total, facts.validator
        if self._remote.size not in (None, self.total):
            raise self._useless(f"it should have {self._remote.size} bytes, not {self.total}")
        wanted = min(size, self.total - self._num_fetched)
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) >= wanted:
                break
        if len(body) < wanted:
            raise self._useless("the answer ends too early")
        return bytes(body[:wanted])

    def _useless(self, why: str) -> FetchError:
        return FetchError(
            "unreachable",
            f"{self._remote.called}: {why}",
            "check the source, and whether the server supports range requests",
        )
