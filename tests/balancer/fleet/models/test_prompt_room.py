from dataclasses import replace

import pytest

from arriero.balancer.fleet.models.prompt_room import PromptRoom, check_length, largest, room_of
from arriero.shared.errors import PromptTooLong
from arriero.shared.inference import ChatMessage, GenerateRequest, PromptInput
from arriero.shared.reports.model_info import Upstream
from tests.balancer.fleet.builders import model_info

SMALL = replace(model_info(), context_size=10, longest_token=4)
LARGE = replace(model_info(), context_size=100, longest_token=2)
ROOM = room_of([SMALL])


def refusal(prompt: PromptInput, room: PromptRoom = ROOM) -> PromptTooLong | None:
    return check_length(GenerateRequest(prompt=prompt), room)


def test_token_ids_are_counted_and_the_answer_needs_one() -> None:
    assert refusal((7,) * 9) is None
    assert refusal((7,) * 10) == PromptTooLong(
        "`prompt`: prompt is too long: 10 tokens > 9 maximum. "
        "This model's maximum context length is 9 tokens.",
        field="prompt",
    )


@pytest.mark.parametrize(("text", "is_too_long"), [("x" * 36, False), ("x" * 37, True)])
def test_a_text_has_at_least_its_bytes_by_the_longest_token(text: str, is_too_long: bool) -> None:
    assert (refusal(text) is not None) == is_too_long
    assert (refusal("é" * (len(text) // 2) + "x" * (len(text) % 2)) is not None) == is_too_long


def test_the_count_of_a_text_is_a_lower_bound() -> None:
    error = refusal("x" * 37)
    assert error is not None
    assert "at least 10 tokens > 9 maximum" in error.message


def test_a_lone_surrogate_is_measured_as_agents_read_it() -> None:
    assert refusal("\ud800" * 36) is None


def test_without_a_longest_token_texts_have_no_bound() -> None:
    unbounded = room_of([replace(SMALL, longest_token=0)])
    assert refusal("x" * 10**6, unbounded) is None
    assert refusal((7,) * 10, unbounded) is not None


def test_the_largest_counts_and_only_of_those_that_generate() -> None:
    both = room_of([SMALL, LARGE])
    assert refusal((7,) * 99, both) is None
    assert refusal("x" * 198, both) is None
    assert refusal("x" * 199, both) is not None
    assert room_of([SMALL, replace(LARGE, tasks=("embed",))]) == ROOM
    assert refusal((7,) * 10**5, largest([])) is None


def test_what_may_be_shortened_or_what_a_template_makes_is_never_too_long() -> None:
    assert check_length(GenerateRequest(prompt=(7,) * 10, n_discard=2), ROOM) is None
    messages = (ChatMessage(role="user", content="x" * 10**5),)
    assert check_length(GenerateRequest(messages=messages), ROOM) is None


def test_an_upstream_may_not_tell_its_context() -> None:
    upstream = Upstream(kind="ollama", address="h:1")
    unknown = replace(model_info(), context_size=0, upstream=upstream)
    assert room_of([unknown]) == PromptRoom()
    assert refusal((7,) * 10_000, room_of([unknown, SMALL])) is None
    assert refusal((7,) * 10, room_of([replace(SMALL, upstream=upstream)])) is not None
