"""The KV cache as the scheduler sees it, whichever layout it has.

Everything that changes cells is recorded as an edit, to be carried out before the next batch, in
the order in which it happened here.

A slot's cells are its sequence's computed tokens, in order, from position 0. What an ended sequence
computed is *kept* as a prefix that others can begin with, in the cache or *parked* in host memory,
as long as there is room. What a cell holds is known by its cache key (`prompt`): sequences share
where their keys are equal.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from ....shared.reports.statistics import Cells
from ..prompt_store.stored_prompt import StoredPrompt
from ..step import Edit
from .allowance import Allowance
from .handed import Handed
from .prefix_marks import Mark, PrefixMarks
from .prefix_tree import Found


class Memory(Protocol):
    """The cells of running sequences and of kept prefixes."""

    allowance: Allowance
    """What may be copied before the next step, and what is."""

    @property
    def can_share(self) -> bool:
        """Whether any prefix can be shared, and a sequence can give up its last cells."""

    @property
    def has_pieces(self) -> bool:
        """Whether states can be copied in pieces, and not only whole."""

    # ---- counts

    @property
    def counts(self) -> Cells:
        """What the cells hold, and how many cells' worth of prefixes is in host memory."""

    @property
    def num_available(self) -> int:
        """Cells that running sequences could still get, if all kept prefixes went."""

    @property
    def num_free(self) -> int:
        """Cells that can be had without giving anything up; negative where too many are taken."""

    @property
    def has_own_cells(self) -> bool:
        """Whether each slot has cells for a whole sequence, which nobody else can take."""

    @property
    def marks(self) -> PrefixMarks:
        """The marks on all prefixes that others can share."""

    def length(self, slot: int) -> int:
        """Cells of `slot`."""

    def place(self, slot: int) -> int:
        """Where `slot` stands in a batch: runs are in the order of their places."""

    def num_needed(self, found: Found, num_tokens: int) -> int:
        """What `num_tokens` take of the available cells when their beginning was `found`."""

    @property
    def can_keep(self) -> bool:
        """Whether prefixes can be kept at all."""

    def is_present(self, found: Found) -> bool:
        """Whether a sequence can begin with what was `found` before the next step."""

    def num_loadable(self, stored: StoredPrompt, keys: Sequence[int], most: int) -> int:
        """With how many of `keys`, at most `most`, a sequence can begin out of `stored`."""

    def saves(self, slot: int, start: int, done: Collection[int]) -> list[Handed] | None:
        """What to hand out of `slot`, from position `start` on, as far as may be copied now.

        Where a sequence can begin at checkpoints alone, those that are `done` are left out.
        `None`: it can never be, as those who stream would wait too long.
        """

    def hand_out(self, keys: Sequence[int], start: int) -> list[Handed] | None:
        """Hand out the cached part of `keys` from `start` on, as far as it may be copied now.

        Returns `None` if no part is cached. The parts are read before anything else changes. If
        sequences can begin only at checkpoints, the longest parked checkpoint is handed out whole.
        """

    def checkpoints(self, keys: Sequence[int]) -> tuple[int, ...]:
        """How long the last checkpoints are that `keys` begin with; they grow."""

    @property
    def may_copy(self) -> bool:
        """Whether what comes from elsewhere can be copied to the cells beside those who stream."""

    # ---- a running sequence

    def find(self, keys: Sequence[int], most: int) -> Found:
        """The longest prefix of `keys`, of at most `most`, that can be shared now or soon."""

    def enter(
        self,
        slot: int,
        keys: list[int],
        found: Found,
        *,
        most_shared: int | None = None,
        marks: Sequence[Mark] = (),
        borders: Sequence[int] = (),
    ) -> None:
        """A sequence gets `slot`, beginning with what was `found`, which is present.

        Others may share its first `most_shared` tokens, or all: then `keys` is read again later,
        as it grows. `marks` are the names of its beginnings, by which others ask for them; its
        messages begin at `borders`.
        """

    def fetch(self, found: Found) -> bool:
        """Bring back what was `found`, as far as may be copied now; whether it is present.

        There must be `num_needed` available cells. What has come back is to be looked for again.
        """

    @property
    def can_extend(self) -> bool:
        """Whether the rest of a prompt can be adopted, whose beginning is in the cells."""

    def adopt(self, stored: StoredPrompt, source: int | None = None) -> int | None:
        """`stored` is a kept prefix from now on, parked: its number, if there is one.

        What comes before its `start` it shares with `source`, which has that in the cells. Only
        where states can be copied in pieces.
        """

    def load(
        self,
        slot: int,
        keys: list[int],
        stored: StoredPrompt,
        length: int,
        *,
        marks: Sequence[Mark] = (),
        borders: Sequence[int] = (),
    ) -> None:
        """A sequence gets `slot`, beginning with the first `length` tokens of `stored`.

        For where prefixes cannot be kept. There must be as many available cells as `stored` has
        tokens.
        """

    def expect(self, slot: int, length: int) -> None:
        """Others wait for the first `length` tokens of `slot`, which it is going to compute."""

    def next_border(self, slot: int) -> int | None:
        """Where the part of its prompt has to end that `slot` computes next, if anywhere."""

    def grow(self, slot: int, count: int) -> None:
        """`count` more tokens of `slot` were computed."""

    def discard(self, slot: int, start: int, count: int | None = None) -> None:
        """`count` tokens of `slot` go, from `start` on; those after them move up.

        Without a `count` all go from there on, as does what a step may have written to `slot`
        without being accounted for. If others may share more than `start` tokens, none may go.
        """

    def leave(self, slot: int) -> None:
        """The sequence of `slot` is gone; what it computed is kept as a prefix for others."""

    def clear(self, slot: int) -> None:
        """Give up the cells of `slot`."""

    # ---- room

    def make_room(self, count: int, *, num_urgent: int | None = None) -> int:
        """Evict kept prefixes until `count` cells are free; how many then are.

        That may be fewer, where no more cells may be copied before the next step, but at least
        `num_urgent`: all if it is not given. Ask for no more than are available.
        """

    def empty_cells(self) -> bool:
        """Evict all kept prefixes that are in the way; whether there were any."""

    def lose(self, holder: int) -> tuple[int, ...]:
        """What was parked as `holder` is lost; with it what has these other numbers."""

    def lower_limit(self, num_free: int) -> None:
        """Count at most `num_free` cells as free from now on."""

    def raise_limit(self, num_free: int | None = None) -> None:
        """Count `num_free` cells as free again, as far as there are as many; without it, all."""

    def take_edits(self) -> tuple[Edit, ...]:
        """What to do to the cells before the next batch is computed."""

    def check_integrity(self) -> None:
        """Raise `RuntimeError` where an invariant is broken."""
