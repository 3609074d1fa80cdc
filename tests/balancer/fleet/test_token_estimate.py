"""What a request may cost, before anybody has tokenised it."""

from dataclasses import replace
from math import inf

from arriero.balancer.fleet.token_estimate import (
    ASSUMED_ANSWER,
    CHARGED_ANSWER,
    LEAST,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    Reservation,
    charge_of,
    charge_of_usage,
    reservation_of,
    reservation_of_queries,
)
from arriero.shared.inference import ChatMessage, GenerateRequest, ImagePart, ImageUrl, TextPart
from arriero.shared.queries import Embed, Rank, Tokenize

IDS = GenerateRequest(prompt=(1, 2, 3), max_tokens=5)


def test_token_ids_are_counted() -> None:
    assert reservation_of(IDS, inf) == Reservation(
        num_prompt_tokens=3, num_answer_tokens=5, has_max_tokens=True
    )


def test_of_texts_bytes_count() -> None:
    assert reservation_of(GenerateRequest(prompt="12345678"), inf).num_prompt_tokens == 2
    assert reservation_of(GenerateRequest(prompt="é" * 8), inf).num_prompt_tokens == 4
    assert reservation_of(GenerateRequest(prompt="1234", suffix="5678"), inf).num_prompt_tokens == 2


def test_messages_and_tools_count() -> None:
    user = ChatMessage(role="user", content=(TextPart(type="text", text="12345678"),))
    request = GenerateRequest(messages=(user,))
    assert reservation_of(request, inf).num_prompt_tokens == 6
    tooled = replace(request, tools=({"name": "x" * 400},))
    assert reservation_of(tooled, inf).num_prompt_tokens > 100
    calling = ChatMessage(role="assistant", tool_calls=({"arguments": "y" * 400},))
    assert reservation_of(GenerateRequest(messages=(calling,)), inf).num_prompt_tokens > 100


def test_an_answer_has_what_the_context_leaves() -> None:
    assert reservation_of(replace(IDS, max_tokens=32_000), 100).num_answer_tokens == 97
    assert reservation_of(replace(IDS, max_tokens=32_000), 2).num_answer_tokens == 1
    assert reservation_of(replace(IDS, max_tokens=500, n_discard=10), 100).num_answer_tokens == 500


def test_without_max_tokens_an_answer_is_assumed() -> None:
    reservation = reservation_of(replace(IDS, max_tokens=None), inf)
    assert reservation.num_answer_tokens == ASSUMED_ANSWER
    assert not reservation.has_max_tokens
    assert reservation_of(replace(IDS, prefill_only=True), inf).num_answer_tokens == 0


def test_of_queries_what_is_embedded_and_ranked_counts() -> None:
    assert reservation_of_queries([Embed(inputs=("12345678", (1, 2, 3)))]).num_tokens == 5
    assert reservation_of_queries([Rank(query="1234", documents=("5678", "9012"))]).num_tokens == 4


def test_counting_tokens_is_no_request() -> None:
    assert reservation_of_queries([Tokenize(text="12345678")]) == Reservation(num_requests=0)


def test_pictures_count_as_many_tokens_as_common_ones_take() -> None:
    picture = ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,aGk="))
    request = GenerateRequest(messages=(ChatMessage(role="user", content=(picture,)),))
    assert reservation_of(request, inf).num_prompt_tokens == TOKENS_PER_IMAGE + TOKENS_PER_MESSAGE


TEXT = GenerateRequest(prompt="x" * 400, max_tokens=50)


def test_prompt_and_longest_answer_count() -> None:
    assert charge_of(TEXT) == 100 + 50
    assert charge_of(replace(TEXT, suffix="y" * 40)) == 100 + 10 + 50
    assert charge_of(replace(TEXT, max_tokens=None)) == 100 + CHARGED_ANSWER
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


def test_in_the_queue_pictures_count_as_many_tokens_as_common_ones_take() -> None:
    picture = ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,aGk="))
    messages = (ChatMessage(role="user", content=(picture, picture)),)
    request = GenerateRequest(messages=messages, max_tokens=1)
    assert charge_of(request) == 2 * TOKENS_PER_IMAGE + TOKENS_PER_MESSAGE + 1
