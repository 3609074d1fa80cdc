"""The message format that a template expects, found by trial renders.

OpenAI's clients send a call's arguments as JSON text. They send `null` as the content of a message
that only calls, and results without the function's name. Most templates expect objects as
arguments, text as content, and results with names. Some expect arguments as text, show calls only
if the content is `none`, or expect content as a list of parts.

A history may have malformed calls: an answer was cut, or a model wrote invalid JSON. A template
gets an object for such arguments too: `{"arguments": …}` with the unchanged value.

Mistral's templates refuse call ids that are not nine letters and digits. Such ids are replaced, in
a call and its result alike.
"""

import json
import re
from base64 import b32encode
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Any

from ....shared.inference import ChatMessage

PlainMessage = dict[str, Any]

Try = Callable[[list[PlainMessage], list[dict[str, Any]] | None], str]
"""Renders messages and tools; returns an empty text if the template refuses them."""

_WORD = "arriero-needle"
_KEY = "arriero_key"
_SHORT_ID, _LONG_ID = "call00001", "call_00001"
_SHORT = re.compile(r"[A-Za-z0-9]{9}")
_TOOL_NAME = "arriero_tool"
_TOOL = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {_KEY: {"type": "string", "description": "A word."}},
            "required": [_KEY],
        },
    },
}


@dataclass(frozen=True, slots=True)
class MessageForm:
    """A template's form of messages. `silence` is the content of a message that only calls.

    `shows_calls` is false if no form made the template show a call and its result.
    """

    has_parts: bool = False
    has_text_arguments: bool = False
    silence: str | None = ""
    has_short_ids: bool = False
    shows_calls: bool = True

    def plain(self, messages: Sequence[ChatMessage]) -> list[PlainMessage]:
        """Return messages as template variables; copies, which the template may change."""
        names: dict[str, str] = {}
        return [self._message(message, names) for message in messages]

    def _message(self, message: ChatMessage, names: dict[str, str]) -> PlainMessage:
        """Convert one message. `names` maps call ids to the function names of earlier calls."""
        plain: PlainMessage = {"role": message.role, "content": self._content(message)}
        for key in ("name", "reasoning_content"):
            if (value := getattr(message, key)) is not None:
                plain[key] = value
        if message.tool_call_id is not None:
            plain["tool_call_id"] = self._id(message.tool_call_id)
        if message.reasoning_content is not None:
            plain["thinking"] = message.reasoning_content  # gpt-oss's name for it
        if message.role == "tool" and (name := names.get(message.tool_call_id or "")):
            plain.setdefault("name", name)
        if message.tool_calls:
            plain["tool_calls"] = [self._call(call, names) for call in message.tool_calls]
        return plain

    def _content(self, message: ChatMessage) -> object:
        text = message.text
        if not text and message.tool_calls:
            return self.silence
        return [{"type": "text", "text": text}] if self.has_parts else text

    def _call(self, call: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
        copy = deepcopy(dict(call))
        function = copy.get("function")
        if not isinstance(function, dict):  # some libraries put its members into the call
            function = {key: copy.pop(key) for key in ("name", "arguments") if key in copy}
        if not isinstance(function.get("name"), str):
            function["name"] = ""
        id = copy.get("id")
        id = f"call{len(names) + 1:05}" if id is None else str(id)
        names[id] = function["name"]
        turned = _as_text if self.has_text_arguments else as_object
        function["arguments"] = turned(function.get("arguments"))
        type = copy.get("type") or "function"
        return {**copy, "id": self._id(id), "type": type, "function": function}

    def _id(self, id: str) -> str:
        """Return the id of a call as the template sees it."""
        if not self.has_short_ids or _SHORT.fullmatch(id):
            return id
        return b32encode(sha256(id.encode()).digest()).decode()[:9]


def as_object(arguments: object) -> dict[str, Any]:
    """Return the arguments of a call as an object; other values become its member `arguments`.

    An empty list becomes an empty object: PHP writes empty objects that way.
    """
    value = _parsed(arguments) if isinstance(arguments, str) else arguments
    if value is None or value in ("", []):
        return {}
    return value if isinstance(value, dict) else {"arguments": value}


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip() and text


def _as_text(arguments: object) -> str:
    if isinstance(arguments, str) and isinstance(_parsed(arguments), dict):
        return arguments
    return json.dumps(as_object(arguments), ensure_ascii=False)


# ---- trying


def form_wanted(attempt: Try) -> MessageForm:
    """Return the form in which the template that `attempt` renders shows content and calls."""
    has_parts = _wants_parts(attempt)
    for has_text_arguments, silence in product((False, True), ("", None)):
        form = MessageForm(has_parts, has_text_arguments, silence)
        if _shows_calls(attempt, form):
            return replace(form, has_short_ids=not _shows_calls(attempt, form, _LONG_ID))
    return MessageForm(has_parts, shows_calls=False)


def _wants_parts(attempt: Try) -> bool:
    asks = ChatMessage(role="user", content=_WORD)
    as_text, as_parts = (MessageForm(each).plain([asks]) for each in (False, True))
    return _WORD not in attempt(as_text, None) and _WORD in attempt(as_parts, None)


def _shows_calls(attempt: Try, form: MessageForm, id: str = _SHORT_ID) -> bool:
    function = {"name": _TOOL_NAME, "arguments": json.dumps({_KEY: _WORD})}
    call = {"id": id, "type": "function", "function": function}
    messages = form.plain(
        [
            ChatMessage(role="user", content="Use the tool."),
            ChatMessage(role="assistant", tool_calls=(call,)),
            ChatMessage(role="tool", content="Done.", tool_call_id=id),
        ]
    )
    text = attempt(messages, [_TOOL])
    # Models were trained neither on Python's notation nor on JSON within a JSON string.
    return _WORD in text and f"'{_KEY}'" not in text and f'\\"{_KEY}' not in text


def ignores_tools(attempt: Try, form: MessageForm) -> bool:
    """Return whether the template never shows tools to the model.

    Some templates show tools only with a system message, and some refuse system messages.
    """
    user = ChatMessage(role="user", content=_WORD)
    system = ChatMessage(role="system", content=_WORD)
    texts = [attempt(form.plain(messages), [_TOOL]) for messages in ([user], [system, user])]
    return any(texts) and not any(_TOOL_NAME in text for text in texts)
