"""Messages: their text, and which can be continued."""

import pytest

from arriero.shared.inference import ChatMessage, TextPart, can_go_on


def test_the_text_of_a_message() -> None:
    parts = (TextPart(type="text", text="a"), TextPart(type="text", text="b"))
    assert ChatMessage(role="user", content=parts).text == "ab"
    assert ChatMessage(role="user", content="ab").text == "ab"
    assert ChatMessage(role="assistant").text == ""


@pytest.mark.parametrize(
    ("messages", "is_right"),
    [
        (None, False),
        ((ChatMessage(role="user", content="I"),), False),
        ((ChatMessage(role="assistant"),), False),
        ((ChatMessage(role="user", content="x"), ChatMessage(role="assistant", content="I")), True),
    ],
)
def test_only_an_assistants_text_is_continued(
    messages: tuple[ChatMessage, ...] | None, is_right: bool
) -> None:
    assert can_go_on(messages) is is_right
