"""Messages: their text, and which can be continued."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.inference import (
    MAX_IMAGES,
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    TextPart,
    can_go_on,
)


def test_the_text_of_a_message() -> None:
    parts = (TextPart(type="text", text="a"), TextPart(type="text", text="b"))
    assert ChatMessage(role="user", content=parts).text == "a\nb", "as lines"
    assert ChatMessage(role="user", content="ab").text == "ab"
    picture = ImagePart(type="image_url", image_url=ImageUrl(url=URL))
    empty = TextPart(type="text", text="")
    mixed = ChatMessage(role="user", content=(*parts, empty, picture, picture, *parts))
    assert mixed.text_with(lambda _: "<>") == "a\nb<><>a\nb"
    assert mixed.text == "a\nba\nb"
    assert ChatMessage(role="assistant").text == ""
    assert ChatMessage(role="user", content=parts).texts == ("a", "b")
    assert ChatMessage(role="user", content="ab").texts == ("ab",)


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


URL = "data:image/png;base64,aGk="


def test_pictures_are_no_text() -> None:
    picture = ImagePart(type="image_url", image_url=ImageUrl(url=URL))
    parts = (TextPart(type="text", text="a"), picture, TextPart(type="text", text="b"))
    message = ChatMessage(role="user", content=parts)
    assert message.text == "ab"
    assert message.images == (picture,)
    assert picture.image_url.base64 == "aGk="
    assert "aGk" not in repr(message), "logs have no pictures"
    assert ChatMessage(role="user", content="a").images == ()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://example.org/a.png", "--media-urls"),
        ("file:///etc/passwd", "--media-urls"),
        ("data:text/plain;base64,aGk=", "jpeg, webp or gif"),
        ("data:image/png,aGk=", "base64"),
    ],
)
def test_a_picture_comes_with_the_message(url: str, word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        TypeAdapter(ImageUrl).validate_json(json.dumps({"url": url}))


def test_a_request_has_so_many_pictures() -> None:
    picture = {"type": "image_url", "image_url": {"url": URL}}

    def request(count: int) -> GenerateRequest:
        given = {"messages": [{"role": "user", "content": [picture] * count}]}
        return TypeAdapter(GenerateRequest).validate_json(json.dumps(given))

    assert request(MAX_IMAGES).senses == ("vision",)
    assert request(1).has_media
    assert not request(0).has_media
    with pytest.raises(ValidationError, match="65 pictures and sounds; at most 64"):
        request(MAX_IMAGES + 1)


def test_a_model_need_not_take_a_picture_in_a_result() -> None:
    picture = ImagePart(type="image_url", image_url=ImageUrl(url=URL))
    result = ChatMessage(role="tool", content=(picture,), tool_call_id="1")
    request = GenerateRequest(messages=(ChatMessage(role="user", content="x"), result))
    assert request.has_media
    assert request.senses == ()
    assert not list(request.media)
