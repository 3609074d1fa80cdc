"""Prefixes that agents fetch from each other: the lending agents, and where to fetch one.

The cells of a prefix are sent over a separate connection between agents (`agent/peers/`).
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..strict import STRICT
from .values import MAX_COUNT

MAX_ADDRESS = 300
MAX_CELLS = 64
MAX_TICKET = 64

LONGEST_LOAN = 60.0
"""Maximum seconds for which a ticket is valid, and for a fetch."""

CellsId = Annotated[str, Field(min_length=1, max_length=MAX_CELLS)]
"""Id of a cell format: equal for the same model, version of llama.cpp and cell types."""

CacheScope = Annotated[str, Field(min_length=1, max_length=64)]
"""Id of a caller's cache: callers with the same scope may share cached prefixes."""

Ticket = Annotated[str, Field(min_length=1, max_length=MAX_TICKET)]
"""A random text that allows an agent to fetch one prefix."""

Patience = Annotated[float, Field(gt=0, le=LONGEST_LOAN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An agent that lends prefixes at `address`, and fetches prefixes from others.

    `tls` says whether the connection uses TLS. Agents with the same `cells` can use each other's
    prefixes: the model, the version of llama.cpp and the format are the same. The cells of a token
    have `cell_bytes`; a prefix has `state_bytes` in addition, whatever its length.
    """

    __pydantic_config__ = STRICT

    address: Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS)]
    tls: bool
    cells: CellsId
    cell_bytes: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    state_bytes: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0

    def can_use(self, other: "Peer") -> bool:
        """Return whether this agent can fetch from `other` and use its prefixes."""
        return self.cells == other.cells and self.tls == other.tls


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSource:
    """The agent at `address` probably has a prefix of the prompt; `ticket` allows a fetch.

    Computing the prefix would take about `seconds`, so a longer fetch is given up.
    """

    __pydantic_config__ = STRICT

    address: Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS)]
    ticket: Ticket
    seconds: Patience
