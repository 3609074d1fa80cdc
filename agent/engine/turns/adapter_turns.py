"""Whose turn a step is, where sequences run under different adapters.

llama.cpp applies adapters to a whole batch, so one step computes sequences of one adapter. Whoever
generates takes turns, a token each, however many sequences an adapter has: so all streams go at one
pace. Prompts are read once in a round at most, the next one in the fair order, whatever its
adapter. So a stream waits for one step of each other adapter, and for one step that reads.

With one adapter a round is one step: streams and prompts take turns, or share steps (`step_mode`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

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

    def __len__(self) -> int:
        """How many take turns."""
        return len(self._order)

    def next(self, generating: Iterable[AdapterKey], readers: Iterable[AdapterKey]) -> Turn:
        """Who is next of those who could generate and of the `readers`, the first of whom counts.

        Those who wait since prompts were read come first, and the longest ago of them.
        """
        generating = dict.fromkeys(generating)
        self._order = [key for key in self._order if key in generating]
        self._order += [key for key in generating if key not in self._order]
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
            self._late.discard(adapter)
            self._order.remove(adapter)
            self._order.append(adapter)
