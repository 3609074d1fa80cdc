from dataclasses import replace

from arriero.agent.generation.answers.held_pieces import EVERY, HeldPieces
from arriero.shared.inference import LogProb, TokenLogProbs
from arriero.shared.messages import Item
from tests.agent.generation.outputs import ENDED, piece, prompt_read

A, B, C, D, E = (piece("r", text) for text in "abcde")


def holding(*items: Item) -> HeldPieces:
    held = HeldPieces()
    held.told((prompt_read("r"), A), 5.0)
    for item in items:
        assert held.told((item,), 5.05) == ()
    return held


def test_the_first_token_is_told_at_once() -> None:
    assert HeldPieces().told((prompt_read("r"), A), 5.0) == (prompt_read("r"), A)


def test_what_comes_meanwhile_is_told_as_one_piece() -> None:
    held = holding(B, C)
    assert held.told((D,), 5.0 + EVERY) == (piece("r", "bcd"),)
    assert held.told((E,), 5.05 + EVERY) == ()


def test_an_end_waits_for_nothing() -> None:
    held = holding(B)
    assert held.told((C, ENDED), 5.05) == (piece("r", "bc"), ENDED)
    assert held.with_rest((ENDED,)) == (ENDED,)


def test_what_was_held_comes_before_an_end_that_no_step_gave() -> None:
    assert holding(B).with_rest((ENDED,)) == (B, ENDED)


def test_thoughts_and_pieces_with_log_probabilities_stay_what_they_are() -> None:
    thought = replace(C, kind="reasoning")
    chosen = LogProb(token=100, piece=b"d", log_prob=-0.5)
    explained = replace(D, log_probs=(TokenLogProbs(chosen=chosen),))
    told = holding(B, thought, explained, E).with_rest(())
    assert told == (B, thought, explained, E)
