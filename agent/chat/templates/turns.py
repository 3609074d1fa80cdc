"""Rewrites the turns of a conversation for a template that refuses them.

Many templates accept a user and an assistant only in turn, the user first, and some know no calls.
Clients send conversations of other shapes: two messages in a row, a history whose beginning was
cut, or calls that another model made. These conversations can still be answered.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, takewhile
from typing import Any

from ....shared.inference import ChatMessage
from ..families.call_syntax import JSON_CALLS, CallSyntax
from .message_form import as_object

BEGINNING = ChatMessage(role="user", content="Begin.")
"""The user turn that is added if a conversation begins with another turn."""


# ---- whose turn it is


def in_turn(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return `messages` with neighbours of the same role joined, beginning with a user turn.

    Instructions before the first turn and results of calls stay unchanged. Empty assistant
    messages are removed.
    """
    lead = list(takewhile(lambda each: each.role in ("system", "developer"), messages))
    turns = [each for each in messages[len(lead) :] if not _is_silent(each)]
    if not turns or turns[0].role != "user":
        turns.insert(0, BEGINNING)
    rows = [list(row) for _, row in groupby(turns, key=lambda each: each.role)]
    return [*lead, *chain.from_iterable(_joined(row) for row in rows)]


def _is_silent(message: ChatMessage) -> bool:
    return message.role == "assistant" and not (message.text or message.tool_calls)


def _joined(row: list[ChatMessage]) -> list[ChatMessage]:
    if len(row) == 1 or row[0].role not in ("user", "assistant"):
        return row
    whole = replace(
        row[0],
        content=_paragraphs(each.text for each in row),
        reasoning_content=_paragraphs(each.reasoning_content or "" for each in row) or None,
        tool_calls=tuple(call for each in row for call in each.tool_calls or ()) or None,
    )
    return [whole]


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, texts))


# ---- tools, calls and results as text


def with_tools(
    messages: Sequence[ChatMessage], tools: Iterable[Mapping[str, Any]], syntax: CallSyntax
) -> list[ChatMessage]:
    """Return `messages` after an instruction that lists the tools and the form of a call."""
    functions = "\n".join(_json(tool.get("function", tool)) for tool in tools)
    form = written([("func_name1", {"argument1": "value1", "argument2": "value2"})], syntax)
    told = (
        f"You have access to the following functions:\n{functions}\n\n"
        "If one of them helps to answer the user, call it: write the call and no other text, in "
        f"this form:\n{form}\nThe next message is its result. Otherwise answer in words."
    )
    if messages and messages[0].role in ("system", "developer"):
        first = replace(messages[0], content=_paragraphs([messages[0].text, told]))
        return [first, *messages[1:]]
    return [ChatMessage(role="system", content=told), *messages]


def calls_as_text(
    messages: Sequence[ChatMessage], syntax: CallSyntax = JSON_CALLS
) -> list[ChatMessage]:
    """Return `messages` with calls as assistant text, and results as user text."""
    names: dict[str, str] = {}
    turns = []
    for message in messages:
        if message.role == "tool":
            name = message.name or names.get(message.tool_call_id or "")
            head = f"Result of {name}:" if name else "Result:"
            message = ChatMessage(role="user", content=f"{head}\n{message.text}")
        elif message.tool_calls:
            calls = [_function(each) for each in message.tool_calls]
            ids = [str(each.get("id")) for each in message.tool_calls]
            names |= zip(ids, (name for name, _ in calls), strict=True)
            text = _paragraphs([message.text, written(calls, syntax)])
            message = replace(message, content=text, tool_calls=None)
        turns.append(message)
    return turns


def has_calls(messages: Sequence[ChatMessage]) -> bool:
    """Return whether `calls_as_text` would change any message."""
    return any(each.role == "tool" or each.tool_calls for each in messages)


def written(calls: Iterable[tuple[str, object]], syntax: CallSyntax) -> str:
    """Write calls, each a name and its arguments, in the notation of `syntax`.

    If that notation writes arguments one by one, the calls are a list in JSON.
    """
    if syntax.arguments != "json":
        syntax = JSON_CALLS
    each = (
        f"{_spelled(syntax.begin, name)}{_json(as_object(arguments))}{_spelled(syntax.end)}"
        for name, arguments in calls
    )
    between = "\n" if syntax.between is None else _spelled(syntax.between)
    return f"{_spelled(syntax.before)}{between.join(each)}{_spelled(syntax.after)}"


def _spelled(part: str, name: str = "") -> str:
    """Replace the placeholders in a part of a notation, the name last: a client chose it."""
    return part.replace("NUMBER", "0").replace("↵", "\n").replace("NAME", _json(name)[1:-1])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _function(call: Mapping[str, Any]) -> tuple[str, object]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        function = call
    return str(function.get("name") or ""), function.get("arguments")
