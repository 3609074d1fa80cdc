"""The messages between an agent and its fetching process: JSON, one message per line.

The agent writes one `FetchOrder` to the process' standard input and keeps the input open: the end
of the input means that the agent is gone. The process writes reports to its standard output; the
last report is `Fetched` or `Refused`. After `Headed` it waits for an empty line. After `Fetched`
it holds its leases until its input ends, so that the agent can take leases of its own.
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
"""Tells the process to download the model shown with `Headed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOrder:
    """Fetch `source` into the folder `root`, whose files may take `limit` bytes together.

    `http_hosts` may send the files without TLS. With `shows_header` the process reports `Headed`
    before it downloads, if the header can be read, and continues after an empty line.
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
    """The model that will be downloaded; only its header was fetched."""

    __pydantic_config__ = STRICT
    type: Literal["headed"] = "headed"
    remote: RemoteModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """`bytes` of the model have arrived; `file` is being downloaded."""

    __pydantic_config__ = STRICT
    type: Literal["arriving"] = "arriving"
    file: str
    bytes: int
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """All files are here. `kept` are the files to lease, `others` other quantisations."""

    __pydantic_config__ = STRICT
    type: Literal["fetched"] = "fetched"
    paths: tuple[Path, ...]
    kept: tuple[Path, ...]
    bytes: int
    others: tuple[OtherFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The files cannot be fetched. `traceback` is set if the agent itself failed."""

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
