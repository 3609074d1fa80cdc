"""What can never run is told why."""

from dataclasses import replace

from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.refusal import refusal
from arriero.agent.engine.sequence import ContextShift, NewSequence, SequenceId
from arriero.shared.errors import EngineFailed, InvalidRequest, PromptTooLong


def make(length: int, shift: ContextShift | None = None, *, num_said: int = 0) -> NewSequence:
    return NewSequence(
        id=SequenceId(1),
        prompt=Prompt((5,) * length),
        max_tokens=None,
        sampling=Sampling(seed=0),
        shift=shift,
        said=(6,) * num_said,
    )


def test_what_no_engine_computes_is_refused_and_not_run() -> None:
    assert refusal(replace(make(1), prompt=Prompt((5, 6), adapter="lora")), 8) is None


def test_a_prompt_with_media_ends_with_a_token_and_has_no_shift_and_no_scores() -> None:
    media = Media(b"image", 3)
    good = replace(make(1), prompt=Prompt((5,), media, (6,)))
    assert refusal(good, 8) is None
    for bad, word in (
        (replace(good, prompt=Prompt((5, 6), media)), "at least one token after"),
        (replace(good, shift=ContextShift(1, 1)), "n_discard"),
        (replace(good, scores_prompt=True), "log-probabilities"),
    ):
        error = refusal(bad, 8)
        assert isinstance(error, InvalidRequest)
        assert word in error.message


def test_a_prompt_needs_tokens() -> None:
    assert isinstance(refusal(make(0), 8), InvalidRequest)
    assert isinstance(refusal(make(0, ContextShift(1, 1)), 8), InvalidRequest)


def test_a_prompt_leaves_room_for_an_answer() -> None:
    assert refusal(make(7), 8) is None
    error = refusal(make(8), 8)
    assert isinstance(error, PromptTooLong)
    assert "8 tokens > 7 maximum" in error.message


def test_a_prompt_that_may_be_shifted_is_never_too_long() -> None:
    assert refusal(make(100, ContextShift(1, 1)), 8) is None


def test_an_answer_that_goes_on_has_to_fit_as_well() -> None:
    assert refusal(make(5, num_said=3), 8) is None
    assert refusal(make(5, ContextShift(1, 1), num_said=4), 8) is None
    error = refusal(make(5, num_said=4), 8)
    assert isinstance(error, EngineFailed)
    assert "longer than this context of 8" in error.message
