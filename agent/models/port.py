"""The port to model files: a source goes in, a path on this host comes out, or a typed error.

The holder of a model has a `FetchedModel`, and with it a lease: agents that share the folder do not
evict files that are leased. `fetch` is cancelled as its task is; what had arrived by then stays in
the folder, and the next `fetch` of the same source goes on from there.
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
"""Codes of the issues that keep a model's files from being here.

`torn`: the file ends too early or late. `not_a_model`: it goes beside a model, and is none itself.
`ambiguous`: several files fit the source. `gated`: the server asks for a token, or another one.
`fetch_failed`: a fault of the agent; its log has details.
"""

FETCH_CODES: frozenset[str] = frozenset(get_args(FetchCode))

OnProgress = Callable[[Download], None]


class FetchError(Exception):
    """The files cannot be had now. `hint` says what to do about it, where there is something.

    `adapter` is the name of the one whose file it is, if it is an adapter's.
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
    """Keeps files from being evicted, on this host, for as long as it is held."""

    def release(self) -> None:
        """From now on they may be evicted. To release twice does nothing."""


@dataclass(frozen=True, slots=True)
class OtherFile:
    """A model in another quantisation: its source, and the bytes of its files."""

    source: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedModel:
    """A model's files on this host. `path` is what the engine loads: of a split model the first.

    `bytes` is the size of all files together. `others` are the same model in other quantisations.
    Release the lease when nothing loads them any more.
    """

    path: Path
    bytes: int
    lease: Lease
    others: tuple[OtherFile, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """A model that is not here, of so many `bytes`; `others` as in `FetchedModel`.

    The header is that of its first file.
    """

    header: GgufHeader
    bytes: int
    others: tuple[OtherFile, ...] = ()


OnHeader = Callable[[RemoteModel], Awaitable[None]]


class ModelFiles(Protocol):
    """Gets model files onto this host."""

    async def fetch(
        self,
        source: str,
        *,
        sha256: str | None = None,
        http_hosts: Sequence[str] = (),
        on_progress: OnProgress,
        on_header: OnHeader | None = None,
    ) -> FetchedModel:
        """The files of `source`, downloaded unless they are here.

        `http_hosts` may send it without TLS (`check_http`).
        `on_progress` is called about twice a second while bytes arrive, here or through another
        agent on this host. `on_header` is awaited before the first one is asked for, where the
        header can be read; what it raises ends the fetch. Raises `FetchError`. Cancel the task to
        stop; it stops at once.
        """

    async def room(self) -> int | None:
        """Bytes that more model files may take, or `None` if that is not known."""
