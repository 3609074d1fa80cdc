"""Pictures, and content that mixes them with text."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from .....shared.inference import ImagePart, ImageUrl, MediaPart, TextPart
from .....shared.strict import STRICT

Content = str | tuple[TextPart | MediaPart, ...]
"""What a neutral message says: text, or parts where there are pictures."""


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
        """As a part of a neutral message."""
        url = f"data:{self.source.media_type};base64,{self.source.data}"
        return ImagePart(type="image_url", image_url=ImageUrl(url=url))


def joined(contents: Iterable[Content | MediaPart]) -> Content:
    """Texts as paragraphs, with pictures between them."""
    parts: list[TextPart | MediaPart] = []
    for content in contents:
        if isinstance(content, str):
            _add(parts, TextPart(type="text", text=content))
            continue
        for part in content if isinstance(content, tuple) else (content,):
            _add(parts, part)
    if not all(isinstance(part, TextPart) for part in parts):
        return tuple(parts)
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _add(parts: list[TextPart | MediaPart], part: TextPart | MediaPart) -> None:
    last = parts[-1] if parts else None
    if isinstance(part, TextPart) and isinstance(last, TextPart):
        parts[-1] = TextPart(type="text", text=f"{last.text}\n\n{part.text}")
    else:
        parts.append(part)
