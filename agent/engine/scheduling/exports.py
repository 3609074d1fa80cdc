"""Prefixes that are handed out for other agents: read piece by piece, beside whatever is computed.

An export ends with what could be read: all that was asked for, less where the rest left the cache
meanwhile, or nothing. It takes no slot and no cells, and computes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NewType

from ..kv_cache.memory import Memory
from ..prompt import Prompt
from ..prompt_store.stored_prompt import Piece, State, StoredPrompt
from ..step import Export, Step

ExportId = NewType("ExportId", int)
"""Unique in one agent process."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What could be read of a prefix; `None` where it is not here."""

    id: ExportId
    prefix: StoredPrompt | None


@dataclass(slots=True)
class _Reading:
    id: ExportId
    prompt: Prompt
    pieces: list[Piece] = field(default_factory=list)
    is_over: bool = False

    @property
    def num_read(self) -> int:
        return sum(piece.num_tokens for piece in self.pieces)

    def take(self, count: int, state: State) -> None:
        if state:
            self.pieces.append(Piece(count, state))
        self.is_over = self.is_over or not state or self.num_read == len(self.prompt)

    @property
    def result(self) -> Exported:
        if not self.pieces:
            return Exported(self.id, None)
        return Exported(
            self.id, StoredPrompt(self.prompt.part(0, self.num_read), tuple(self.pieces))
        )


class Exports:
    """One prefix is read at a time, in the order in which they were asked for."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiting: list[_Reading] = []
        self._done: list[Exported] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing is asked for that was not read, or not taken."""
        return not self._waiting and not self._done

    def add(self, id: ExportId, prompt: Prompt) -> None:
        """Read the longest beginning of `prompt` that is here."""
        self._waiting.append(_Reading(id, prompt))

    def withdraw(self, id: ExportId) -> None:
        """Read no more of it: nothing comes of it. Unknown ids are ignored. Not during a step."""
        self._waiting = [one for one in self._waiting if one.id != id]
        self._done = [one for one in self._done if one.id != id]

    def plan(self) -> tuple[Export, ...]:
        """What to read after all other edits of the step, as far as may still be copied."""
        if not self._waiting:
            return ()
        one = self._waiting[0]
        edits: list[Export] = []
        start = one.num_read
        while (there := self._memory.exportable(one.prompt.keys, start)) is not None:
            holder, most = there
            if not (count := self._memory.allowance.take_some(most)):
                return tuple(edits)
            edits.append(Export(holder, start, count))
            start += count
        one.is_over = not edits
        return tuple(edits)

    def read(self, step: Step, saved: Sequence[State]) -> None:
        """`step` was carried out; of its edits that hand out states, these are the states."""
        if not self._waiting:
            return
        one = self._waiting[0]
        edits = [edit for edit in step.edits if isinstance(edit, Export)]
        for edit, state in zip(edits, saved[len(saved) - len(edits) :], strict=True):
            if not one.is_over:
                one.take(edit.count, state)
        if one.is_over:
            self._done.append(self._waiting.pop(0).result)

    def take(self) -> list[Exported]:
        """Those that have ended since the last call."""
        done, self._done = self._done, []
        return done
