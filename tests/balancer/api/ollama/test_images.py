"""Pictures in base64 as parts of messages."""

import base64

import pytest

from arriero.balancer.api.ollama.conversation import check_few, with_images
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import MAX_IMAGES, ChatMessage, ImagePart, ImageUrl, TextPart

FILES = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "gif": b"GIF89a\1\0",
    "webp": b"RIFF\x10\0\0\0WEBPVP8 ",
}


def part(url: str) -> ImagePart:
    return ImagePart(type="image_url", image_url=ImageUrl(url=url))


@pytest.mark.parametrize("kind", FILES)
def test_a_file_says_its_kind(kind: str) -> None:
    data = base64.b64encode(FILES[kind]).decode()
    assert with_images("", [data], "images") == (part(f"data:image/{kind};base64,{data}"),)


def test_a_text_alone_stays_text() -> None:
    assert with_images("Hi", [], "images") == "Hi"


def test_the_text_comes_last() -> None:
    png = base64.b64encode(FILES["png"]).decode()
    told = with_images("Hi", [png, png], "images")
    assert told[2:] == (TextPart(type="text", text="Hi"),)


@pytest.mark.parametrize("wrong", ["", "aGVsbG8=", "data:image/png;base64,iVBORw0KGgo"])
def test_what_is_no_picture_is_named(wrong: str) -> None:
    png = base64.b64encode(FILES["png"]).decode()
    with pytest.raises(InvalidRequest) as refused:
        with_images("", [png, wrong], "messages[2].images")
    assert refused.value.field == "messages[2].images[1]"


def test_one_request_has_few() -> None:
    message = ChatMessage(role="user", content=(part("data:image/png;base64,"),) * MAX_IMAGES)
    check_few([message])
    with pytest.raises(InvalidRequest, match="65 pictures"):
        check_few([message, ChatMessage(role="user", content=message.content[:1])])
