"""A page of an answer's input items, in OpenAI's list format."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, assert_never

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from .....shared.errors import InvalidRequest
from .....shared.strict import FROZEN
from .....shared.validation import invalid
from .answer_types import (
    FunctionCallItem,
    InputItem,
    InputItems,
    InputTextPart,
    MessagePart,
    OutputTextPart,
)
from .items import FunctionCallOutput, InputFunctionCall, InputImage, InputMessage, Item, Reasoning


class Page(BaseModel):
    """The requested page: up to `limit` items after the item with the id `after`."""

    model_config = FROZEN

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


def parse_page(query: Mapping[str, str]) -> Page:
    """Parse a query string. Raises `InvalidRequest`."""
    asked = {name: value for name, value in query.items() if not name.startswith("include")}
    try:
        return Page.model_validate(asked)
    except ValidationError as error:
        raise invalid(error, to_json(asked)) from error


def input_list(items: Sequence[Item], page: Page) -> InputItems:
    """Return the items of `page`. Raises `InvalidRequest` if no item has the id `page.after`."""
    ordered = list(items) if page.order == "asc" else list(reversed(items))
    if page.after is not None:
        ids = [item.id for item in ordered]
        if page.after not in ids:
            raise InvalidRequest(f"`after`: there is no item {page.after[:100]!r}", field="after")
        ordered = ordered[ids.index(page.after) + 1 :]
    shown = [listed(item) for item in ordered[: page.limit]]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] or "" if shown else "",
        "last_id": shown[-1]["id"] or "" if shown else "",
        "has_more": len(ordered) > page.limit,
    }


def listed(item: Item) -> InputItem:
    """Return an input item in the form of a list."""
    match item:
        case InputMessage():
            is_models = item.role == "assistant"
            return {
                "id": item.id,
                "type": "message",
                "status": item.status,
                "role": item.role,
                "content": [_said(item.text)] if is_models else _shown(item),
            }
        case Reasoning():
            return {
                "id": item.id,
                "type": "reasoning",
                "status": item.status,
                "summary": [{"type": part.type, "text": part.text} for part in item.summary],
                "content": [{"type": part.type, "text": part.text} for part in item.content],
            }
        case InputFunctionCall():
            return _call(item)
        case FunctionCallOutput():
            return {
                "id": item.id,
                "type": "function_call_output",
                "status": item.status,
                "call_id": item.call_id,
                "output": item.text,
            }
        case _:
            assert_never(item)


def _shown(item: InputMessage) -> list[MessagePart]:
    """Return consecutive texts as one part; pictures stay between the texts."""
    content = item.content
    if isinstance(content, str) or not any(isinstance(each, InputImage) for each in content):
        return [_text(item.text)]
    return [
        {"type": "input_image", "image_url": part.image_url, "detail": "auto"}
        if isinstance(part, InputImage)
        else _text(part.text)
        for part in content
    ]


def _said(text: str) -> OutputTextPart:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _text(text: str) -> InputTextPart:
    return {"type": "input_text", "text": text}


def _call(item: InputFunctionCall) -> FunctionCallItem:
    listed: FunctionCallItem = {
        "id": item.id,
        "type": "function_call",
        "status": item.status,
        "call_id": item.call_id,
        "name": item.name,
        "arguments": item.arguments,
    }
    if item.namespace is not None:
        listed["namespace"] = item.namespace
    return listed
