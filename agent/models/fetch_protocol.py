"""What an agent and its fetching process say to each other: JSON, one message a line.

The agent writes one `FetchOrder` to the process' standard input and keeps that open: its end means
that the agent is gone. The process writes reports to its standard output, `Fetched` or `Refused`
last. After `Headed` it waits for an empty line. After `Fetched` it holds its leases until its input
ends, so that the agent can take its own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ...shared.models.sources import HttpHosts
from ...shared.strict import LAZY, STRICT
from ..json_lines import Lines
from .port import FetchCode, OtherFile, RemoteModel

GO_ON = b"\n"
"""Download what was shown with `Headed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """Fetch `source` into the folder `root`, all files of which may take `limit` bytes.

    `http_hosts` may send it without TLS. With `shows_header` the process reports `Headed` before it
    downloads, where the header can be read, and goes on when it gets an empty line.
    """

    __pydantic_config__ = STRICT
    source: str
    sha256: str | None = None
    root: Path
    limit: int | None = None
    http_hosts: HttpHosts = ()
    shows_header: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Headed:
    """What is to be downloaded; nothing of it was fetched but its header."""

    __pydantic_config__ = STRICT
    type: Literal["headed"] = "headed"
    remote: RemoteModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """`bytes` of the model are here; `file` is on its way."""

    __pydantic_config__ = STRICT
    type: Literal["arriving"] = "arriving"
    file: str
    bytes: int
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """All files are here. `kept` are those to lease, `others` other quantisations."""

    __pydantic_config__ = STRICT
    type: Literal["fetched"] = "fetched"
    paths: tuple[Path, ...]
    kept: tuple[Path, ...]
    bytes: int
    others: tuple[OtherFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The files cannot be had. `traceback` where that is the agent's own fault."""

    __pydantic_config__ = STRICT
    type: Literal["refused"] = "refused"
    code: FetchCode
    message: str
    hint: str = ""
    traceback: str = ""


FetchReport = Annotated[Headed | Arriving | Fetched | Refused, Field(discriminator="type")]

_order: TypeAdapter[FetchOrder] = TypeAdapter(FetchOrder)
_report: TypeAdapter[FetchReport] = TypeAdapter(FetchReport, config=LAZY)

FETCH_ORDERS = Lines(_order)
FETCH_REPORTS = Lines(_report)
