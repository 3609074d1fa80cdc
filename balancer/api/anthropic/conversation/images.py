"""Pictures, and content that mixes them with text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Literal

from pydantic import Field

from .....shared.inference import ImagePart, ImageUrl, MediaPart, TextPart
from .....shared.strict import STRICT

Content = str | tuple[TextPart | MediaPart, ...]
"""A neutral message's content: text, or parts if there are pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageData:
    """A picture in base64."""

    __pydantic_config__ = STRICT
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: Annotated[str, Field(min_length=1)] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture."""

    __pydantic_config__ = STRICT
    type: Literal["image"]
    source: ImageData

    @property
    def part(self) -> ImagePart:
        """The picture as a part of a neutral message."""
        url = f"data:{self.source.media_type};base64,{self.source.data}"
        return ImagePart(type="image_url", image_url=ImageUrl(url=url))


def joined(contents: Iterable[Content | MediaPart]) -> Content:
    """Texts as paragraphs, with pictures between them."""
    parts: list[TextPart | MediaPart] = []
    for is_text, run in groupby(_parts(contents), key=lambda part: isinstance(part, TextPart)):
        if is_text:
            text = "\n\n".join(part.text for part in run if isinstance(part, TextPart))
            parts.append(TextPart(type="text", text=text))
        else:
            parts += run
    if not all(isinstance(part, TextPart) for part in parts):
        return tuple(parts)
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _parts(contents: Iterable[Content | MediaPart]) -> Iterator[TextPart | MediaPart]:
    for content in contents:
        if isinstance(content, str):
            yield TextPart(type="text", text=content)
        elif isinstance(content, tuple):
            yield from content
        else:
            yield content
