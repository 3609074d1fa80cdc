"""Converts Ollama's messages, with their pictures, to neutral messages.

A tool result names its tool, and in older clients it has no name at all. But chat templates need
the id of the call. So calls without an id get one, and results are matched to calls in order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ....shared.errors import InvalidRequest
from ....shared.inference import (
    MAX_IMAGES,
    MAX_MESSAGES,
    MAX_PARTS,
    ChatMessage,
    ImagePart,
    ImageUrl,
    Role,
    TextPart,
    arguments_text,
)
from ....shared.strict import STRICT, ListOf

Images = Annotated[ListOf[str], Field(max_length=MAX_IMAGES)]

_BEGINNINGS = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}
"""The first characters of picture files, in base64."""


def with_images(
    text: str, images: Sequence[str], field: str
) -> str | tuple[ImagePart | TextPart, ...]:
    """Return a message's content: its pictures, then its text. Raises `InvalidRequest`.

    `field` is the name of `images` in the body.
    """
    if not images:
        return text
    parts = _parts(images, field)
    return (*parts, TextPart(type="text", text=text)) if text else tuple(parts)


def check_few(messages: Sequence[ChatMessage]) -> None:
    """Raise `InvalidRequest` for more pictures than one request may have."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Function:
    __pydantic_config__ = STRICT

    name: str
    arguments: Any = None
    index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageToolCall:
    __pydantic_config__ = STRICT

    function: _Function
    id: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaChatMessage:
    """One message of `/api/chat`."""

    __pydantic_config__ = STRICT

    role: Role
    content: str | None = None
    thinking: str | None = None
    images: Images | None = None
    tool_calls: Annotated[ListOf[_MessageToolCall], Field(max_length=MAX_PARTS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


Messages = Annotated[ListOf[OllamaChatMessage], Field(max_length=MAX_MESSAGES)]


def to_neutral(messages: Iterable[OllamaChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the conversation as neutral messages.

    Raises `InvalidRequest` for an invalid picture.
    """
    open_calls = _OpenCalls()
    return tuple(
        _neutral(message, open_calls, f"messages[{place}].images")
        for place, message in enumerate(messages)
    )


def _neutral(message: OllamaChatMessage, open_calls: "_OpenCalls", images: str) -> ChatMessage:
    id, name = message.tool_call_id, message.tool_name
    content = with_images(message.content or "", message.images or (), images)
    if message.role == "tool":
        id = open_calls.answered(id, name)
    return ChatMessage(
        role=message.role,
        content=content or ("" if not message.tool_calls else None),
        reasoning_content=message.thinking or None,
        tool_calls=open_calls.made(message.tool_calls) if message.tool_calls else None,
        tool_call_id=id,
        name=name,
    )


class _OpenCalls:
    """The calls so far that have no result yet."""

    def __init__(self) -> None:
        self._num_calls = 0
        self._open: dict[str, str] = {}  # the names of functions by id

    def made(self, calls: Sequence[_MessageToolCall]) -> tuple[dict[str, Any], ...]:
        """Add calls, and return them in neutral form."""
        return tuple(self._made(call) for call in calls)

    def _made(self, call: _MessageToolCall) -> dict[str, Any]:
        self._num_calls += 1
        id = call.id or f"call{self._num_calls:05}"  # nine characters, as some templates ask for
        self._open[id] = call.function.name
        arguments = arguments_text(call.function.arguments)
        function = {"name": call.function.name, "arguments": arguments}
        return {"id": id, "type": "function", "function": function}

    def answered(self, id: str | None, name: str | None) -> str | None:
        """Return the id of the first open call that fits a result, if any."""
        if id is None:
            fitting = (each for each, called in self._open.items() if name in (None, called))
            id = next(fitting, None)
        self._open.pop(id or "", None)
        return id
