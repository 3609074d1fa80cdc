"""Pictures, and blocks that models read as text: texts, documents, search results, names of tools.

Documents and search results are enclosed in tags, so that a model can tell them from the question.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Literal

from pydantic import Field

from .....shared.errors import InvalidRequest
from .....shared.inference import MAX_PARTS, ImagePart, ImageUrl, MediaPart, TextPart
from .....shared.strict import STRICT, ListOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text block."""

    __pydantic_config__ = STRICT
    type: Literal["text"] = "text"
    text: str

    @property
    def read(self) -> str:
        """The text that the model reads."""
        return self.text


Texts = Annotated[ListOf[Text], Field(max_length=MAX_PARTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSource:
    """A document as one text."""

    __pydantic_config__ = STRICT
    type: Literal["text"]
    data: str
    media_type: Literal["text/plain"]

    @property
    def read(self) -> str:
        """The text that the model reads."""
        return self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSource:
    """A document as a text or text blocks."""

    __pydantic_config__ = STRICT
    type: Literal["content"]
    content: str | Texts

    @property
    def read(self) -> str:
        """The text that the model reads."""
        return paragraphs(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document of plain text."""

    __pydantic_config__ = STRICT
    type: Literal["document"]
    source: Annotated[PlainSource | BlockSource, Field(discriminator="type")]
    title: str | None = None
    context: str | None = None

    @property
    def read(self) -> str:
        """The text that the model reads."""
        return _tagged(self.type, self.source.read, title=self.title, context=self.context)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A search result of the client."""

    __pydantic_config__ = STRICT
    type: Literal["search_result"]
    source: str
    title: str
    content: Texts

    @property
    def read(self) -> str:
        """The text that the model reads."""
        text = paragraphs(self.content)
        return _tagged(self.type, text, title=self.title, source=self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReference:
    """A tool that a client's search found; the model knows its definition from `tools`."""

    __pydantic_config__ = STRICT
    type: Literal["tool_reference"]
    tool_name: str

    @property
    def read(self) -> str:
        """The text that the model reads."""
        return f"<{self.type}>{self.tool_name}</{self.type}>"


Readable = Text | Document | SearchResult | ToolReference


def check_documents(blocks: object, field: str) -> None:
    """Refuse PDFs among unchecked `blocks` and in their results. Raises `InvalidRequest`.

    `field` is the name of `blocks` in the body.
    """
    if not isinstance(blocks, list):
        return
    for number, block in enumerate(blocks):
        if isinstance(block, dict):
            place = f"{field}[{number}]"
            _check_source(block.get("type"), block.get("source"), f"{place}.source")
            check_documents(block.get("content"), f"{place}.content")


def _check_source(type: object, source: object, field: str) -> None:
    kind = source.get("type") if isinstance(source, dict) else None
    if type == "document" and kind == "base64":
        raise InvalidRequest(
            f"`{field}`: PDFs are not supported; send the text as a source of the type "
            "`text`, or the pages as blocks of the type `image`",
            field=field,
        )


def paragraphs(content: str | Iterable[Readable] | None) -> str:
    """Return a text, or the texts of all blocks, as one text."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n\n".join(block.read for block in content)


def _tagged(tag: str, text: str, **about: str | None) -> str:
    heads = [f"<{name}>{value}</{name}>" for name, value in about.items() if value]
    return "\n".join((f"<{tag}>", *heads, text, f"</{tag}>"))


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
    """Return texts as paragraphs, with pictures between them."""
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
