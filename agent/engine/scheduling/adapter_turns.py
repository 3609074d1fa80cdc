"""Decides which adapter the next step computes, if sequences use different adapters.

llama.cpp applies adapters to a whole batch, so one step computes sequences of one adapter. Adapters
with generating sequences take turns of equally many tokens for each sequence, however many
sequences an adapter has, so all streams advance at one pace. A change of adapters costs as much as
a small step. So if a round of all adapters is short, a turn has several steps; while prompts wait,
it has one. Prompts are read at most once in a round: the next one in the fair order, whatever its
adapter. So a stream waits for one turn of each other adapter, and for one step that reads.

With one adapter a round is one step: streams and prompts take turns, or share steps (`prefill`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

from .step_budget import StepBudget

ROUND = 0.2
"""The part of the maximum stall that a round of all adapters may take if turns are longer."""

MOST_IN_TURN = 16
"""Maximum steps of a turn; a change of adapters then costs little in comparison."""

PROBED = 2
"""Steps of a turn until the cost of a step without a change of adapter is known."""

AdapterKey = str | None
"""The value of `Prompt.adapter`; `None` is the model without adapters."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The adapter of a step; the step may read the adapter's prompts if `reads`."""

    adapter: AdapterKey = None
    reads: bool = False


class AdapterTurns:
    """Records which adapters generated, least recent first, and which wait since a read."""

    def __init__(self) -> None:
        self._order: list[AdapterKey] = []
        self._late: set[AdapterKey] = set()
        self._turn: tuple[AdapterKey, int] | None = None
        """The adapter that generated last, and its number of steps in a row."""

    def __len__(self) -> int:
        """Return the number of adapters that take turns."""
        return len(self._order)

    def next(
        self,
        generating: Iterable[AdapterKey],
        readers: Iterable[AdapterKey],
        most_steps: int = 1,
    ) -> Turn:
        """Choose the next turn among the adapters that can generate and the `readers`.

        The first of the `readers` is the adapter of the next prompt. The last adapter continues up
        to `most_steps`, unless there are readers. Adapters that have waited since prompts were read
        come first, the longest waiting first.
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
        """Record that a step of `adapter` generates, reads prompts, or both."""
        if has_read:
            self._late = set(self._order)
        if has_generated:
            last, num_steps = self._turn or (None, 0)
            self._turn = (adapter, num_steps + 1 if last == adapter else 1)
            self._late.discard(adapter)
            self._order.remove(adapter)
            self._order.append(adapter)


def steps_of_a_turn(budget: StepBudget, sizes: Iterable[int]) -> int:
    """Return the steps of each adapter's turn, from the number of sequences under each adapter.

    It is at least one. A stream waits for all other turns, so only short rounds get several steps.
    The more steps a turn has, the less the changes of adapters cost. If every step so far changed
    the adapter, a second step measures what steps cost without a change.
    """
    sizes = list(sizes)
    seconds = sum(map(budget.cost.generate, sizes))
    if not seconds:
        return 1
    if not budget.cost.knows_unchanged:
        return PROBED
    left = ROUND * budget.max_stall - len(sizes) * budget.cost.change
    return max(1, min(MOST_IN_TURN, floor(left / seconds)))
