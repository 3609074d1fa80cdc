"""Prefixes that agents fetch from each other: who lends them, and where one is to be had.

The states of a prefix go from agent to agent over a connection of their own (`agent/peers/`).
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
"""Seconds for which a ticket is good at most, and that a fetch may take."""

CellsId = Annotated[str, Field(min_length=1, max_length=MAX_CELLS)]
"""Equal where the same model, version of llama.cpp and format computed cells."""

CacheScope = Annotated[str, Field(min_length=1, max_length=64)]
"""Stands for a caller: those of one scope may share what was computed for them."""

Ticket = Annotated[str, Field(min_length=1, max_length=MAX_TICKET)]
"""Good for one prefix, for the agent that shows it; random."""

Patience = Annotated[float, Field(gt=0, le=LONGEST_LOAN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An agent that lends prefixes at `address`, over TLS where it says so, and fetches others'.

    Agents with the same `cells` can use each other's: the same model computed them, with the same
    version of llama.cpp, in the same format. Those of a token have `cell_bytes`; a prefix has
    `state_bytes` besides, whatever its length.
    """

    __pydantic_config__ = STRICT

    address: Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS)]
    tls: bool
    cells: CellsId
    cell_bytes: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    state_bytes: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0

    def can_use(self, other: "Peer") -> bool:
        """Whether what `other` lends fits here, and it can be asked."""
        return self.cells == other.cells and self.tls == other.tls


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSource:
    """The agent at `address` probably has a beginning of the prompt; it knows the `ticket`.

    To compute it would take about `seconds`: a fetch that takes longer is given up.
    """

    __pydantic_config__ = STRICT

    address: Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS)]
    ticket: Ticket
    seconds: Patience
