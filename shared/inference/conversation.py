"""A conversation as chat templates expect it: messages, and the tools that the model may call."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import to_json

from ..strict import STRICT, ListOf

Role = Literal["system", "developer", "user", "assistant", "tool"]

MAX_MESSAGES = 4096
MAX_PARTS = 4096
"""Maximum parts of one message, and maximum calls."""
MAX_TOOLS = 1024
MAX_IMAGES = 64
"""Maximum pictures and sounds of a request: each takes memory and time to decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A text among the parts of a message's content."""

    __pydantic_config__ = STRICT

    type: Literal["text"]
    text: str


_DATA_URI = re.compile(r"data:image/(png|jpeg|jpg|webp|gif);base64,", re.IGNORECASE)


def _carries_data(url: str) -> str:
    if _DATA_URI.match(url):
        return url
    if url[:5].lower() == "data:":
        raise ValueError(
            "must be a picture as data:image/png;base64,… (or jpeg, webp or gif); other data are "
            "not read"
        )
    raise ValueError(
        "must carry the picture itself, as data:image/png;base64,…: links are read over HTTP, and "
        "where the balancer is allowed to (--media-urls)"
    )


DataUri = Annotated[str, AfterValidator(_carries_data)]
"""A picture: PNG, JPEG, WebP or GIF in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUrl:
    """A picture as a data URI: PNG, JPEG, WebP or GIF in base64."""

    __pydantic_config__ = STRICT

    url: DataUri = field(repr=False)

    @property
    def base64(self) -> str:
        """The picture's data in base64, without the head of the URI."""
        return self.url.partition(",")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """A picture, at its place among the parts of a message's content."""

    __pydantic_config__ = STRICT

    type: Literal["image_url"]
    image_url: ImageUrl


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAudio:
    """A WAV or MP3 file in base64."""

    __pydantic_config__ = STRICT

    data: Annotated[str, StringConstraints(min_length=1)] = field(repr=False)
    format: Literal["wav", "mp3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioPart:
    """Sound, at its place among the parts of a message's content."""

    __pydantic_config__ = STRICT

    type: Literal["input_audio"]
    input_audio: InputAudio


MediaPart = ImagePart | AudioPart
Part = Annotated[TextPart | ImagePart | AudioPart, Field(discriminator="type")]
ContentParts = Annotated[ListOf[Part], Field(max_length=MAX_PARTS)]
ToolCalls = Annotated[ListOf[dict[str, Any]], Field(max_length=MAX_PARTS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a conversation, as chat templates expect it."""

    __pydantic_config__ = STRICT

    role: Role
    content: str | ContentParts | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: ToolCalls | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The content as one string without media; neighbouring texts are separate lines."""
        return self.text_with(lambda _: "")

    def text_with(self, shown: Callable[[MediaPart], str]) -> str:
        """Return the content as one string, with `shown(part)` in the place of each media part.

        Neighbouring texts are joined by new lines, as in llama-server and vLLM.
        """
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        rows = groupby(self.content, key=lambda part: isinstance(part, TextPart))
        return "".join(_row(tuple(row), shown) for _, row in rows)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the content in order, not joined."""
        if self.content is None or isinstance(self.content, str):
            return (self.content or "",)
        return tuple(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The pictures in the content, in order."""
        return tuple(part for part in self.media if isinstance(part, ImagePart))

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """The pictures and sounds in the content, in order."""
        return tuple(part for part in self.parts if not isinstance(part, TextPart))

    @property
    def parts(self) -> tuple[TextPart | MediaPart, ...]:
        """The parts of the content; empty if the content is a string."""
        return self.content if isinstance(self.content, tuple) else ()


def in_words(part: MediaPart) -> str:
    """Return the text that replaces a picture or sound for a model that cannot take it."""
    kind = "picture" if isinstance(part, ImagePart) else "sound"
    return f"[a {kind} that this model cannot take]"


def _row(parts: Sequence[TextPart | MediaPart], shown: Callable[[MediaPart], str]) -> str:
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    media = [shown(part) for part in parts if not isinstance(part, TextPart)]
    return "\n".join(filter(None, texts)) + "".join(media)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTool:
    """A tool that the answer must call."""

    __pydantic_config__ = STRICT

    name: Annotated[str, StringConstraints(min_length=1, max_length=256)]


ToolChoice = Literal["auto", "none", "required"] | NamedTool
Messages = Annotated[ListOf[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
ToolList = Annotated[ListOf[dict[str, Any]], Field(max_length=MAX_TOOLS)]


def arguments_text(arguments: object) -> str:
    """Return the arguments of a call as JSON text, as OpenAI's clients send them.

    A string is returned unchanged, even if it is not JSON: an answer can be cut within a call.
    """
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else to_json(arguments).decode()


TO_GO_ON = "needs `messages` that end with an assistant's message that has content"


def can_go_on(messages: Sequence[ChatMessage] | None) -> bool:
    """Return whether `messages` end with an answer that `continue_final_message` can continue."""
    return messages is not None and messages[-1].role == "assistant" and bool(messages[-1].text)
