"""Edits carried out one by one."""

from arriero.agent.engine.llama.cells.edits import carry_out
from arriero.agent.engine.step import Clear, Edit, Move, Park, Swap


def test_moves_are_timed_and_say_what_was_lost() -> None:
    done: list[Edit] = []

    def move(edit: Move) -> tuple[int, ...]:
        done.append(edit)
        return (7, 8) if isinstance(edit, Swap) else ()

    edits = (Clear(1), Park(5, 0, 3), Swap(0, 1, 4))
    lost, seconds = carry_out(edits, edit=done.append, move=move)
    assert tuple(done) == edits
    assert lost == (7, 8)
    assert seconds > 0
    assert carry_out((Clear(1),), edit=done.append, move=move) == ((), 0.0)
