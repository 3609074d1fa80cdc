"""Items of the Responses API, and their conversion to neutral messages.

Templates expect one assistant message per turn. So consecutive reasoning, text and calls are
merged if they come in that order. `status`, `phase`, `encrypted_content` and the annotations of a
text are accepted but not passed to the model.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.inference import (
    MAX_PARTS,
    ChatMessage,
    DataUri,
    ImagePart,
    ImageUrl,
    TextPart,
    arguments_text,
)
from .....shared.strict import LAZY, STRICT, ListOf
from ..completions.formats import qualified

Status = Literal["in_progress", "completed", "incomplete"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputText:
    """A part of the model's input."""

    __pydantic_config__ = STRICT
    type: Literal["input_text"] = "input_text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputText:
    """A part of an answer of the model."""

    __pydantic_config__ = STRICT
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[Any, ...] = ()
    logprobs: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryText:
    """A part of a summary by another service."""

    __pydantic_config__ = STRICT
    type: Literal["summary_text"] = "summary_text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningText:
    """A part of the model's reasoning."""

    __pydantic_config__ = STRICT
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputImage:
    """A picture, as a data URI."""

    __pydantic_config__ = STRICT
    type: Literal["input_image"] = "input_image"
    image_url: DataUri = field(repr=False)


InputPart = Annotated[InputText | InputImage, Field(discriminator="type")]
MessagePart = Annotated[InputText | OutputText | InputImage, Field(discriminator="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMessage:
    """A message of the conversation."""

    __pydantic_config__ = STRICT
    type: Literal["message"] = "message"
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[ListOf[MessagePart], Field(max_length=MAX_PARTS)]
    status: Status = "completed"
    phase: str | None = None

    @property
    def text(self) -> str:
        """Return all texts of the message."""
        return self.content if isinstance(self.content, str) else _texts(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """Reasoning of the model."""

    __pydantic_config__ = STRICT
    type: Literal["reasoning"] = "reasoning"
    id: str | None = None
    summary: Annotated[ListOf[SummaryText], Field(max_length=MAX_PARTS)] = ()
    content: Annotated[ListOf[ReasoningText], Field(max_length=MAX_PARTS)] = ()
    encrypted_content: str | None = None
    status: Status = "completed"

    @property
    def text(self) -> str:
        """Return the reasoning text, or the summary if another service has hidden the text."""
        return _joined(self.content or self.summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFunctionCall:
    """A function call. `arguments` is JSON text; a client may send an object instead."""

    __pydantic_config__ = STRICT
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = "{}"
    status: Status = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCallOutput:
    """The result of the call `call_id`. The model does not see its name."""

    __pydantic_config__ = STRICT
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    call_id: str
    name: str | None = None
    namespace: str | None = None
    output: str | Annotated[ListOf[InputPart], Field(max_length=MAX_PARTS)]
    status: Status = "completed"

    @property
    def text(self) -> str:
        """Return all texts of the result."""
        return self.output if isinstance(self.output, str) else _texts(self.output)


Item = Annotated[
    InputMessage | Reasoning | InputFunctionCall | FunctionCallOutput, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReference:
    """A reference to an item that was stored with a response."""

    __pydantic_config__ = STRICT
    type: Literal["item_reference"] = "item_reference"
    id: str

    @property
    def response(self) -> str | None:
        """Return the id, without prefix, of the response to which the item belongs, if any."""
        kind, _, rest = self.id.partition("_")
        response, _, place = rest.rpartition("_")
        return response if kind in _PREFIXES.values() and place else None


GivenItem = Annotated[
    InputMessage | Reasoning | InputFunctionCall | FunctionCallOutput | ItemReference,
    Field(discriminator="type"),
]
"""An entry of an input."""

_items: TypeAdapter[tuple[Item, ...]] = TypeAdapter(tuple[Item, ...], config=LAZY)

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
}


def item_id(type: str, response: str, place: str) -> str:
    """Return the id of an item of the answer `response`; `place` is unique among its items."""
    return f"{_PREFIXES[type]}_{response}_{place}"


def plain_items(value: object) -> object:
    """Return `input` normalised for validation: a list, each entry with `type`, without `null`."""
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    return [_plain_item(each) for each in value] if isinstance(value, list) else value


def _plain_item(item: object) -> object:
    if isinstance(item, dict) and (arguments := item.get("arguments")) is not None:
        item = {**item, "arguments": arguments_text(arguments)}
    plain = _without_nulls(item)
    if isinstance(plain, dict) and "type" not in plain and "role" in plain:
        return {"type": "message", **plain}
    if isinstance(plain, dict) and plain.keys() == {"id"}:
        return {"type": "item_reference", **plain}
    return plain


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def items_of(output: Iterable[object]) -> tuple[Item, ...]:
    """Return the items of an answer in the form of input items."""
    return _items.validate_json(to_json(list(output)))


def with_ids(items: Iterable[Item], response: str) -> tuple[Item, ...]:
    """Return the input items of the answer `response`, each with an id."""
    return tuple(
        item if item.id else replace(item, id=item_id(item.type, response, f"in{place}"))
        for place, item in enumerate(items)
    )


# ---- as messages


def to_messages(instructions: str | None, items: Iterable[Item]) -> tuple[ChatMessage, ...]:
    """Return the conversation as messages for a chat template.

    `instructions` are merged with a system or developer message right after them, because templates
    take only one. Raises `InvalidRequest` for a call output without a matching call.
    """
    messages = list(_messages(items))
    if instructions is not None:
        if messages and messages[0].role in ("system", "developer"):
            instructions = f"{instructions}\n\n{messages.pop(0).text}"
        messages.insert(0, ChatMessage(role="system", content=instructions))
    return tuple(messages)


def _messages(items: Iterable[Item]) -> Iterator[ChatMessage]:
    turn = _Turn()
    calls: set[str] = set()
    for item in items:
        if not turn.takes(item):
            yield from turn.message()
            turn = _Turn()
        match item:
            case InputMessage(role="assistant") | Reasoning():
                turn.add(item)
            case InputFunctionCall():
                calls.add(item.call_id)
                turn.add(item)
            case InputMessage():
                yield ChatMessage(role=item.role, content=_said(item.content))
            case FunctionCallOutput():
                _check_called(item.call_id, calls)
                content = _said(item.output)
                yield ChatMessage(role="tool", content=content, tool_call_id=item.call_id)
            case _:
                assert_never(item)
    yield from turn.message()


def _check_called(call_id: str, calls: set[str]) -> None:
    if call_id not in calls:
        raise InvalidRequest(
            f"`input`: the output for call_id {call_id[:100]!r} has no function call before it",
            field="input",
        )


@dataclass(slots=True)
class _Turn:
    """Consecutive output of the model: reasoning, then text, then calls."""

    thoughts: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: list[Json] = field(default_factory=list)

    def takes(self, item: Item) -> bool:
        match item:
            case Reasoning():
                return not self.content and not self.calls
            case InputMessage(role="assistant"):
                return not self.content and not self.calls
            case InputFunctionCall():
                return True
            case _:
                return False

    def add(self, item: InputMessage | Reasoning | InputFunctionCall) -> None:
        match item:
            case Reasoning():
                self.thoughts.append(item.text)
            case InputMessage():
                self.content.append(item.text)
            case InputFunctionCall():
                name = qualified(item.name, item.namespace)
                function = {"name": name, "arguments": item.arguments}
                self.calls.append({"id": item.call_id, "type": "function", "function": function})
            case _:
                assert_never(item)

    def message(self) -> Iterator[ChatMessage]:
        if self.thoughts or self.content or self.calls:
            yield ChatMessage(
                role="assistant",
                content="".join(self.content) if self.content else None,
                reasoning_content="\n".join(self.thoughts) or None,
                tool_calls=tuple(self.calls) or None,
            )


def _joined(parts: Iterable[InputText | OutputText | SummaryText | ReasoningText]) -> str:
    return "\n".join(part.text for part in parts if part.text)


def _texts(parts: Iterable[InputText | OutputText | InputImage]) -> str:
    return _joined(part for part in parts if not isinstance(part, InputImage))


def _said(
    content: str | Sequence[InputText | OutputText | InputImage],
) -> str | tuple[TextPart | ImagePart, ...]:
    """Return one text, or parts if there are pictures."""
    if isinstance(content, str):
        return content
    if not any(isinstance(part, InputImage) for part in content):
        return _texts(content)
    return tuple(
        ImagePart(type="image_url", image_url=ImageUrl(url=part.image_url))
        if isinstance(part, InputImage)
        else TextPart(type="text", text=part.text)
        for part in content
    )
