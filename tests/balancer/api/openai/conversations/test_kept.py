"""A conversation and its changes."""

import pytest

from arriero.balancer.api.openai.conversations.kept import KeptConversation, size_of
from arriero.balancer.api.openai.responses.items import InputMessage, OutputText
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import MAX_MESSAGES


def said(id: str, text: str = "Hi") -> InputMessage:
    return InputMessage(id=id, role="user", content=text)


EMPTY = KeptConversation(created_at=5)


def test_each_change_is_a_new_version() -> None:
    one = EMPTY.with_items((said("a"), said("b")))
    two = one.without_item("a")
    assert two is not None
    three = two.labelled({"topic": "llamas"})
    assert [each.version for each in (EMPTY, one, two, three)] == [0, 1, 2, 3]
    assert three.items == (said("b"),)
    assert three.metadata == {"topic": "llamas"}
    assert EMPTY.items == ()


def test_it_counts_its_items() -> None:
    one = EMPTY.with_items((said("a", "x" * 1000),))
    assert one.num_bytes > 1000
    assert one.items_bytes == size_of(one.items)
    rest = one.without_item("a")
    assert rest is not None and rest.items_bytes == 0


def test_it_counts_the_memory_that_its_items_take() -> None:
    """Empty objects are 24 times as large as their JSON, and a text with an emoji four times."""
    part = OutputText(text="", annotations=tuple({} for _ in range(10_000)))
    odd = (InputMessage(role="assistant", content=(part,)), said("b", "😀" + "x" * 100_000))
    one = EMPTY.with_items(odd)
    assert one.num_bytes > 10_000 * 64 + 4 * 100_000 > 3 * one.items_bytes
    assert one.as_stored().num_bytes >= one.num_bytes - 10
    rest = one.without_item("b")
    assert rest is not None and rest.num_bytes < one.num_bytes - 400_000


def test_no_item_to_take_away() -> None:
    assert EMPTY.without_item("a") is None


def test_it_has_as_many_items_as_a_request_may_have() -> None:
    full = EMPTY.with_items(tuple(said(str(place)) for place in range(MAX_MESSAGES)))
    with pytest.raises(InvalidRequest, match=f"{MAX_MESSAGES} are allowed"):
        full.with_items((said("one more"),))


def test_a_response_goes_on_from_its_items() -> None:
    one = EMPTY.with_items((said("a"),))
    stored = one.as_stored()
    assert (stored.history, stored.history_bytes) == (one.items, one.items_bytes)
