from dataclasses import replace

from arriero.balancer.fleet.requests.fair_queue.charge import (
    ASSUMED_ANSWER,
    LEAST,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    charge_of,
    charge_of_usage,
)
from arriero.shared.inference import ChatMessage, GenerateRequest, ImagePart, ImageUrl, TextPart

TEXT = GenerateRequest(prompt="x" * 400, max_tokens=50)


def test_prompt_and_longest_answer_count() -> None:
    assert charge_of(TEXT) == 100 + 50
    assert charge_of(replace(TEXT, suffix="y" * 40)) == 100 + 10 + 50
    assert charge_of(replace(TEXT, max_tokens=None)) == 100 + ASSUMED_ANSWER
    assert charge_of(replace(TEXT, prompt=tuple(range(400)))) == 400 + 50


def test_a_prompt_that_is_only_read_has_no_answer() -> None:
    assert charge_of(replace(TEXT, prefill_only=True)) == 100


def test_messages_count_with_what_templates_put_around_them() -> None:
    parts = (TextPart(type="text", text="a" * 40), TextPart(type="text", text="b" * 40))
    messages = (
        ChatMessage(role="user", content="x" * 40),
        ChatMessage(role="user", content=parts),
        ChatMessage(role="assistant"),
    )
    request = GenerateRequest(messages=messages, max_tokens=100)
    assert charge_of(request) == 10 + 20 + 3 * TOKENS_PER_MESSAGE + 100


def test_nothing_is_free() -> None:
    assert charge_of(GenerateRequest(prompt="", max_tokens=1)) == LEAST
    assert charge_of_usage(0, 0) == LEAST
    assert charge_of_usage(30, 12) == 42


def test_pictures_count_as_many_tokens_as_common_ones_take() -> None:
    picture = ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,aGk="))
    messages = (ChatMessage(role="user", content=(picture, picture)),)
    request = GenerateRequest(messages=messages, max_tokens=1)
    assert charge_of(request) == 2 * TOKENS_PER_IMAGE + TOKENS_PER_MESSAGE + 1
