"""Whose turn a step is, where sequences run under different adapters.

llama.cpp applies adapters to a whole batch, so one step computes sequences of one adapter. Whoever
generates takes turns of as many tokens each, however many sequences an adapter has: so all streams
go at one pace. A change of adapters costs as much as a small step, so where a round of everybody is
short a turn has several steps; while prompts wait it has one. Prompts are read once in a round at
most, the next one in the fair order, whatever its adapter. So a stream waits for one turn of each
other adapter, and for one step that reads.

With one adapter a round is one step: streams and prompts take turns, or share steps (`prefill`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

from .step_budget import StepBudget

ROUND = 0.2
"""The part of the longest stall that a round of all adapters may take for longer turns."""

MOST_IN_TURN = 16
"""Steps of a turn: by then a change of adapters costs little beside them."""

PROBED = 2
"""Steps of a turn while only steps were seen that changed the adapter."""

AdapterKey = str | None
"""What `Prompt.adapter` is: `None` stands for the model alone."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The step is of sequences under `adapter`. Only if it `reads` it may read their prompts."""

    adapter: AdapterKey = None
    reads: bool = False


class AdapterTurns:
    """Remembers who generates, the longest ago first, and who has not since prompts were read."""

    def __init__(self) -> None:
        self._order: list[AdapterKey] = []
        self._late: set[AdapterKey] = set()
        self._turn: tuple[AdapterKey, int] | None = None
        """Who generated last, and in how many steps in a row."""

    def __len__(self) -> int:
        """How many take turns."""
        return len(self._order)

    def next(
        self,
        generating: Iterable[AdapterKey],
        readers: Iterable[AdapterKey],
        most_steps: int = 1,
    ) -> Turn:
        """Who is next of those who could generate and of the `readers`, the first of whom counts.

        Whoever generated last goes on until that were `most_steps`, unless there are readers. Those
        who wait since prompts were read come first, and the longest ago of them.
        """
        readers = list(readers)
        generating = dict.fromkeys(generating)
        self._order = [key for key in self._order if key in generating]
        self._order += [key for key in generating if key not in self._order]
        if self._turn is not None and not readers:
            adapter, num_steps = self._turn
            if adapter in generating and num_steps < most_steps:
                return Turn(adapter)
        self._late.intersection_update(generating)
        for key in self._order:
            if key in self._late:
                return Turn(key)
        for reader in readers:
            if reader in generating and reader != self._order[0]:
                break  # it may generate besides, so it waits for its turn
            return Turn(reader, reads=True)
        return Turn(self._order[0]) if self._order else Turn()

    def took(self, adapter: AdapterKey, *, has_generated: bool, has_read: bool) -> None:
        """Its step generates for `adapter`, or reads prompts, or both."""
        if has_read:
            self._late = set(self._order)
        if has_generated:
            last, num_steps = self._turn or (None, 0)
            self._turn = (adapter, num_steps + 1 if last == adapter else 1)
            self._late.discard(adapter)
            self._order.remove(adapter)
            self._order.append(adapter)


def steps_of_a_turn(budget: StepBudget, sizes: Iterable[int]) -> int:
    """How many steps each adapter has in a round, where so many sequences generate under each.

    At least one. A stream waits for all others' turns, so short rounds have several. The more
    there are, the less changes of the adapter cost; where each step was one, a second step
    shows what steps take without.
    """
    sizes = list(sizes)
    seconds = sum(map(budget.cost.generate, sizes))
    if not seconds:
        return 1
    if not budget.cost.knows_unchanged:
        return PROBED
    left = ROUND * budget.max_stall - len(sizes) * budget.cost.change
    return max(1, min(MOST_IN_TURN, floor(left / seconds)))
