"""Prefixes that are handed out, for other agents or the disk: read piece by piece, beside whatever
is computed.

An export ends with what could be read: all that was asked for, less where the rest left the cache
meanwhile, or nothing. It takes no slot and no cells, and computes nothing. One that can wait comes
after all others, and takes a small part of the time of those who stream.
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
"""Unique in one agent process."""

PART = 0.1
"""The part of the time that reading what can wait takes beside streams."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What could be read of a prefix; `None` where it is not here."""

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
        """`parts` were read, each as one of `states`."""
        self.read.take(parts, states)
        has_all = self.read.has_all(len(self.prompt)) or bool(self.read.checkpoints)
        self.is_over = self.is_over or has_all or self.read.is_lost

    @property
    def result(self) -> Exported:
        """What could be read of it."""
        return Exported(self.id, self.read.stored(self.prompt))


class Exports:
    """Prefixes are read in the order in which they were asked for, one before each step.

    With `are_whole` states each piece costs what all of its stream does: what can wait does so as
    long as anybody streams.
    """

    def __init__(self, memory: Memory, moves: MoveCost, *, are_whole: bool = False) -> None:
        self._memory = memory
        self._moves = moves
        self._are_whole = are_whole
        self._waiting: list[_Export] = []
        self._current: _Export | None = None
        """The one that the planned step reads."""
        self._parts: list[Handed] = []
        """What the planned step hands out of it."""
        self._rests_until = 0.0
        self._done: list[Exported] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked for that was not read, or not taken."""
        return not self._waiting and not self._done

    def add(self, id: ExportId, prompt: Prompt, *, start: int = 0, can_wait: bool = False) -> None:
        """Read the longest beginning of `prompt` that is here, from position `start` on."""
        self._waiting.append(_Export(id, prompt, can_wait, HandOut(start)))

    def withdraw(self, id: ExportId) -> None:
        """Read no more of it: nothing comes of it. Unknown ids are ignored. Not during a step."""
        self._waiting = [one for one in self._waiting if one.id != id]
        self._done = [one for one in self._done if one.id != id]

    def plan(self, num_streaming: int, now: float) -> tuple[Edit, ...]:
        """What to read after all other edits of the step, as far as may still be copied.

        `num_streaming` generate; `now` is the scheduler's clock.
        """
        self._current = one = self._next(num_streaming, now)
        self._parts = []
        if one is None:
            return ()
        num_moved = self._memory.allowance.num_moved
        parts = self._memory.hand_out(one.prompt.keys, one.read.num_read)
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
        """The planned step was carried out, and handed out these states, after all others."""
        one, self._current = self._current, None
        if one is None:
            return
        one.take(self._parts, saved[len(saved) - len(self._parts) :])
        if one.is_over:
            self._waiting.remove(one)
            self._done.append(one.result)

    def take(self) -> list[Exported]:
        """Those that have ended since the last call."""
        done, self._done = self._done, []
        return done
