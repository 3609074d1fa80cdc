"""Edits carried out one by one, whatever the cells are."""

from collections.abc import Sequence

from arriero.agent.engine.llama.cells.edits import Edits
from arriero.agent.engine.prompt_store.stored_prompt import State
from arriero.agent.engine.step import (
    Clear,
    Copy,
    Free,
    Offload,
    OffloadState,
    Put,
    ReadOut,
    Restore,
    RestoreState,
)


class Torn:
    """Cells of which nothing can be read, and to which nothing can be written."""

    def __init__(self) -> None:
        self.written: list[tuple[int, Sequence[tuple[int, State]]]] = []

    def number(self, slot: int) -> int:
        return slot

    def clear(self, holder: int, start: int) -> bool:
        return True

    def copy(self, edit: Copy) -> bool:
        return False

    def place(self, holder: int, stream: int) -> None:
        """They are where they are."""

    def discard(self, slot: int, start: int, count: int) -> None:
        """They stay."""

    def read(self, holder: int, start: int, count: int) -> State:
        raise ValueError("torn")

    def write(self, holder: int, start: int, pieces: Sequence[tuple[int, State]]) -> bool:
        self.written.append((start, pieces))
        return False

    def read_state(self, holder: int, length: int) -> State:
        raise ValueError("torn")

    def write_state(self, holder: int, length: int, state: State) -> bool:
        return False

    def end(self) -> None:
        """Nothing is remembered."""


def test_an_answer_says_what_was_lost_and_what_took_time() -> None:
    edits = Edits(Torn())
    assert edits.carry_out((Clear(1),)).move_seconds == 0.0
    edited = edits.carry_out((Put(3, b"one"), Restore(7, 0, 2, 3), RestoreState(8, 2, 3, 1)))
    assert edited.not_loaded == (7, 8)
    assert edited.move_seconds > 0
    assert edits.carry_out((Copy(0, 9, 3), Free((3,)))).not_loaded == (9,)


def test_what_cannot_be_read_is_empty() -> None:
    reads = (Offload(0, 0, 3, 1), OffloadState(0, 3, 2, 1), ReadOut(1), ReadOut(2))
    assert Edits(Torn()).carry_out(reads).saved == (b"", b"")


def test_what_follows_each_other_is_written_at_once() -> None:
    cells = Torn()
    puts = (Put(1, b"one"), Put(2, b"two"))
    restores = (Restore(7, 0, 2, 1), Restore(7, 2, 1, 2), Restore(8, 0, 2, 1))
    assert Edits(cells).carry_out((*puts, *restores)).not_loaded == (7, 8)
    assert cells.written == [(0, [(2, b"one"), (1, b"two")]), (0, [(2, b"one")])]
