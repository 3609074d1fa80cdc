"""Content that mixes pictures with text."""

from arriero.balancer.api.anthropic.conversation.documents import Image, ImageData, joined
from arriero.shared.inference import TextPart

DATA = ImageData(type="base64", media_type="image/webp", data="aGk=")
PART = Image(type="image", source=DATA).part


def says(text: str) -> TextPart:
    return TextPart(type="text", text=text)


def test_a_picture_is_a_data_uri() -> None:
    assert PART.image_url.url == "data:image/webp;base64,aGk="
    assert "aGk=" not in repr(Image(type="image", source=DATA))


def test_texts_without_pictures_are_one_text() -> None:
    assert joined(["a", "b"]) == "a\n\nb"
    assert joined([]) == ""


def test_pictures_part_the_texts() -> None:
    assert joined(["a", PART, "b", "c"]) == (says("a"), PART, says("b\n\nc"))
    assert joined([(says("a"), PART), (says("b"),)]) == (says("a"), PART, says("b"))
    assert joined([PART]) == (PART,)
