"""The port to model files: a source in, a path on this host or a typed error out.

The holder of a `FetchedModel` has a lease: agents that share the folder do not evict leased files.
To cancel `fetch`, cancel its task. Arrived bytes stay in the folder, and the next `fetch` of the
same source resumes from them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from ...shared.messages import Issue
from ...shared.models.assignments import Download
from ..gguf.header import GgufHeader

FetchCode = Literal[
    "disk_full",
    "denied",
    "not_found",
    "ambiguous",
    "torn",
    "wrong_checksum",
    "not_a_gguf",
    "not_a_model",
    "too_large",
    "unreachable",
    "gated",
    "fetch_failed",
]
"""Codes of the issues that prevent a model's files from being on this host.

`torn`: the file is too short or too long. `not_a_model`: the file is an adapter or a projector.
`ambiguous`: several files match the source. `gated`: the server asks for a token, or refuses the
token. `fetch_failed`: the agent itself failed; its log has details.
"""

FETCH_CODES: frozenset[str] = frozenset(get_args(FetchCode))

OnProgress = Callable[[Download], None]


class FetchError(Exception):
    """The files cannot be fetched now. `hint` says what to do, if anything can be done.

    If the file belongs to an adapter, `adapter` is the adapter's name.
    """

    def __init__(
        self, code: FetchCode, message: str, hint: str = "", *, adapter: str | None = None
    ) -> None:
        super().__init__(message)
        self.code: FetchCode = code
        self.message = message
        self.hint = hint
        self.adapter = adapter

    @property
    def issue(self) -> Issue:
        return Issue(code=self.code, message=self.message, hint=self.hint, adapter=self.adapter)


class Lease(Protocol):
    """Protects files on this host from eviction while it is held."""

    def release(self) -> None:
        """Allow eviction of the files. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A model in another quantisation: its source, and the bytes of its files."""

    source: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedModel:
    """A model's files on this host.

    `path` is the file that the engine loads: the first file of a split model.

    `bytes` is the size of all files together. `others` are other quantisations of the model.
    Release the lease once the files are no longer needed.
    """

    path: Path
    bytes: int
    lease: Lease
    others: tuple[OtherFile, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model that is not on this host. `bytes` is its size; `others` as in `FetchedModel`.

    `header` is the header of its first file.
    """

    header: GgufHeader
    bytes: int
    others: tuple[OtherFile, ...] = ()


OnHeader = Callable[[RemoteModel], Awaitable[None]]


class ModelFiles(Protocol):
    """Brings model files onto this host."""

    async def fetch(
        self,
        source: str,
        *,
        sha256: str | None = None,
        http_hosts: Sequence[str] = (),
        on_progress: OnProgress,
        on_header: OnHeader | None = None,
    ) -> FetchedModel:
        """Return the files of `source`; missing files are downloaded.

        `http_hosts` may send the files without TLS (`check_http`). `on_progress` is called about
        twice a second while bytes arrive, in this process or through another agent on this host.
        `on_header` is awaited before the download begins, if the header can be read; an exception
        from it ends the fetch. Raises `FetchError`. Cancel the task to stop at once.
        """

    async def room(self) -> int | None:
        """Return the bytes that more model files may take; `None` if unknown."""
