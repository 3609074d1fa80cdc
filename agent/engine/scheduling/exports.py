"""Exports: prefixes read from the cache to be stored or sent, one part before each step.

An export ends with the prefix that could be read. The prefix is shorter than requested, or
missing, if cells left the cache in the meantime. An export takes no slot and no cells, and
computes nothing. Exports that can wait come after all other exports, and take a small part of the
time of streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

from ..cost.move_cost import MoveCost
from ..kv_cache.handed import Handed, HandOut
from ..kv_cache.memory import Memory
from ..prompt import Prompt
from ..prompt_store.stored_prompt import State, StoredPrompt
from ..step import Edit

ExportId = NewType("ExportId", int)
"""An id that is unique in one agent process."""

PART = 0.1
"""The part of a stream's time for exports that can wait."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The part of a prefix that could be read; `None` if it is not in the cache."""

    id: ExportId
    prefix: StoredPrompt | None


@dataclass(slots=True)
class _Export:
    id: ExportId
    prompt: Prompt
    can_wait: bool
    read: HandOut
    is_over: bool = False

    def take(self, parts: Sequence[Handed], states: Sequence[State]) -> None:
        """Add `parts`, each read as one of `states`."""
        self.read.take(parts, states)
        has_all = self.read.has_all(len(self.prompt))
        self.is_over = self.is_over or has_all or self.read.is_lost


class Exports:
    """Reads prefixes in the order of the requests, one before each step.

    If states `are_whole`, each part costs as much as the whole stream. Then exports that can wait
    do so as long as any sequence generates.
    """

    def __init__(self, memory: Memory, moves: MoveCost, *, are_whole: bool = False) -> None:
        self._memory = memory
        self._moves = moves
        self._are_whole = are_whole
        self._waiting: list[_Export] = []
        self._current: _Export | None = None
        """The export that the planned step reads."""
        self._parts: list[Handed] = []
        """The parts that the planned step reads."""
        self._rests_until = 0.0
        self._done: list[Exported] = []

    @property
    def is_idle(self) -> bool:
        """Return whether every export was read and taken."""
        return not self._waiting and not self._done

    def add(self, id: ExportId, prompt: Prompt, wanted: HandOut, *, can_wait: bool = False) -> None:
        """Request the longest cached prefix of `prompt`; `wanted` says which part of it."""
        self._waiting.append(_Export(id, prompt, can_wait, wanted))

    def withdraw(self, id: ExportId) -> None:
        """Cancel an export, between two steps. Unknown ids are ignored."""
        self._waiting = [one for one in self._waiting if one.id != id]
        self._done = [one for one in self._done if one.id != id]

    def plan(self, num_streaming: int, now: float) -> tuple[Edit, ...]:
        """Plan the reads after all other edits of the step, within the copy allowance.

        `num_streaming` sequences generate; `now` is the scheduler's clock.
        """
        self._current = one = self._next(num_streaming, now)
        self._parts = []
        if one is None:
            return ()
        num_moved = self._memory.allowance.num_moved
        parts = self._memory.hand_out(one.prompt.keys, one.read)
        one.is_over = parts is None
        self._parts = parts or []
        if one.can_wait and num_streaming:
            num_cells = self._memory.allowance.num_moved - num_moved
            self._rests_until = now + self._moves.seconds(num_cells) / PART
        return tuple(edit for part in self._parts for edit in part.edits)

    def _next(self, num_streaming: int, now: float) -> _Export | None:
        urgent = next((one for one in self._waiting if not one.can_wait), None)
        if urgent is not None or not self._waiting:
            return urgent
        is_calm = not num_streaming or (not self._are_whole and now >= self._rests_until)
        return self._waiting[0] if is_calm else None

    def read(self, saved: Sequence[State]) -> None:
        """Take the states of the step's exports, which come last in `saved`."""
        one, self._current = self._current, None
        if one is None:
            return
        one.take(self._parts, saved[len(saved) - len(self._parts) :])
        if one.is_over:
            self._waiting.remove(one)
            is_usable = self._memory.can_cut or bool(one.read.checkpoints)
            prefix = one.read.stored(one.prompt) if is_usable else None
            self._done.append(Exported(one.id, prefix))

    def take(self) -> list[Exported]:
        """Return the exports that have ended since the last call."""
        done, self._done = self._done, []
        return done
