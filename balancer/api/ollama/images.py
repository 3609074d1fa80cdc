"""Ollama's pictures, which are base64 alone, as parts of neutral messages.

What kind of file it is, its first bytes say.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from ....shared.errors import InvalidRequest
from ....shared.inference import MAX_IMAGES, ChatMessage, ImagePart, ImageUrl, TextPart
from ....shared.strict import ListOf

Images = Annotated[ListOf[str], Field(max_length=MAX_IMAGES)]

_BEGINNINGS = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}
"""Beginnings of picture files, in base64."""


def with_images(
    text: str, images: Sequence[str], field: str
) -> str | tuple[ImagePart | TextPart, ...]:
    """A message's content: its pictures, then its text. Raises `InvalidRequest`.

    `field` is the name of `images` in the body.
    """
    if not images:
        return text
    parts = _parts(images, field)
    return (*parts, TextPart(type="text", text=text)) if text else tuple(parts)


def check_few(messages: Sequence[ChatMessage]) -> None:
    """Raises `InvalidRequest` for more pictures than one request may have."""
    num_images = sum(len(message.images) for message in messages)
    if num_images > MAX_IMAGES:
        raise InvalidRequest(
            f"`messages` has {num_images} pictures; at most {MAX_IMAGES} are read", field="messages"
        )


def _parts(images: Sequence[str], field: str) -> Iterator[ImagePart]:
    for number, data in enumerate(images):
        kind = next((kind for begin, kind in _BEGINNINGS.items() if data.startswith(begin)), None)
        if kind is None:
            place = f"{field}[{number}]"
            raise InvalidRequest(
                f"`{place}` must be a PNG, JPEG, WebP or GIF file in base64", field=place
            )
        url = ImageUrl(url=f"data:image/{kind};base64,{data}")
        yield ImagePart(type="image_url", image_url=url)
