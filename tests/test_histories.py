"""No history ends a conversation, whatever the chat template: none is refused, nothing is lost."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.chat.templates.chat_template import ChatTemplate
from arriero.shared.inference import ChatMessage
from bench.source import source_folder

PUBLIC = source_folder() / "vendor" / "llama.cpp" / "models" / "templates"
"""llama.cpp's collection of public templates."""

BROKEN = {"fireworks-ai-llama-3-firefunction-v2"}
"""Public templates that fail on any conversation: they need variables of their own."""

ALTERNATING = """\
{%- if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}
{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('alternate') }}
    {%- endif %}
    {{- '<' ~ m.role ~ '>' ~ m.content }}
{%- endfor %}"""

NINE_LETTERS = """\
{%- set seen = namespace(user=true) %}
{%- if tools is not none %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'user' or (m.role == 'assistant' and m.tool_calls is undefined) %}
        {%- if (m.role == 'user') != seen.user %}{{ raise_exception('alternate') }}{% endif %}
        {%- set seen.user = not seen.user %}
    {%- endif %}
    {%- if m.tool_calls is defined and m.tool_calls is not none %}
        {%- if m.tool_calls | length == 0 %}{{ raise_exception('calls of nothing') }}{% endif %}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}
            {{- m.content ~ '[CALL]' ~ call.function | tojson ~ call.id }}
        {%- endfor %}
    {%- elif m.role == 'tool' %}
        {%- if m.tool_call_id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}
        {{- '[RESULT]' ~ m.content ~ m.tool_call_id }}
    {%- else %}
        {{- '[' ~ m.role ~ ']' ~ m.content }}
    {%- endif %}
{%- endfor %}"""

ONE_CALL = """\
{%- if tools is not none %}{{ 'Tools: ' ~ tools | tojson }}{% endif %}
{%- set last = namespace(role='') %}
{%- for m in messages %}
    {%- if 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}{{ raise_exception('a single call') }}{% endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- m.content ~ '<call ' ~ call.name ~ '>' }}
        {%- for name, value in call.arguments.items() %}
            {{- name ~ '=' ~ value | tojson }}
        {%- endfor %}
    {%- elif m.role == 'tool' and last.role not in ('call', 'tool') %}
        {{- raise_exception('a result of no call') }}
    {%- else %}
        {{- '<' ~ m.role ~ '>' ~ m.content }}
    {%- endif %}
    {%- set last.role = 'call' if 'tool_calls' in m else m.role %}
{%- endfor %}"""

AS_TEXT = """\
{%- if not messages | selectattr('role', 'equalto', 'user') | list %}
    {{- raise_exception('no query of a user') }}
{%- endif %}
{%- for tool in tools %}{{ tool.function.name }}{% endfor %}
{%- for m in messages %}
    {{- '<' ~ m.role ~ '>' ~ (m.content or '') }}
    {%- for call in m.tool_calls %}
        {{- call.function.name + ': ' + call.function.arguments }}
    {%- endfor %}
{%- endfor %}"""

INVENTED = {
    "alternating": ALTERNATING,
    "nine letters": NINE_LETTERS,
    "one call": ONE_CALL,
    "as text": AS_TEXT,
}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Where."}},
                "required": ["city"],
            },
        },
    }
]

USER = ChatMessage(role="user", content="the question")
ANSWER = ChatMessage(role="assistant", content="the answer")
SYSTEM = ChatMessage(role="system", content="the instruction")
SILENT = ChatMessage(role="assistant", content="")

Turns = list[ChatMessage]


def call(id: str | None = "call00001", **function: Any) -> dict[str, Any]:
    named = {} if id is None else {"id": id}
    return {**named, "type": "function", "function": {"name": "get_weather", **function}}


def calling(*calls: dict[str, Any]) -> ChatMessage:
    return ChatMessage(role="assistant", tool_calls=calls)


def result(id: str = "call00001") -> ChatMessage:
    return ChatMessage(role="tool", content="the result", tool_call_id=id)


def loop(one: dict[str, Any]) -> Turns:
    """A call and its result, which are not the last of the conversation."""
    return [USER, calling(one), result(str(one.get("id"))), ANSWER, USER]


CALL = calling(call(arguments="{}"))
OTHER = calling(call("call00002", arguments="{}"))

ARGUMENTS = [
    "",
    " ",
    "null",
    None,
    '{"city": "Par',
    '"Paris"',
    "[1]",
    [1],
    "7",
    7,
    True,
    "Paris",
    {},
]
IDS = ["call_00001", "toolu_01A09q90qw90lq917835lq9", "functions.get_weather:0", "1", ""]

HISTORIES: dict[str, Turns] = {
    **{f"arguments {each!r}": loop(call(arguments=each)) for each in ARGUMENTS},
    **{f"id {each!r}": loop(call(each, arguments="{}")) for each in IDS},
    "no id": loop(call(None, arguments="{}")),
    "no arguments": loop(call()),
    "no function": [USER, calling({"id": "call00001"}), result(), ANSWER, USER],
    "no calls": [USER, ChatMessage(role="assistant", content="the answer", tool_calls=()), USER],
    "two users": [USER, USER],
    "two users later": [SYSTEM, USER, ANSWER, USER, USER],
    "the assistant first": [ANSWER, USER],
    "the assistant first after a system": [SYSTEM, ANSWER, USER],
    "two assistants": [USER, ANSWER, ANSWER, USER],
    "an assistant that says nothing": [USER, SILENT, USER],
    "a system alone": [SYSTEM],
    "an assistant alone": [ANSWER],
    "a system later": [USER, ANSWER, SYSTEM, USER],
    "a system between two users": [USER, SYSTEM, USER],
    "a system between two results": [
        USER,
        calling(call(arguments="{}"), call("call00002", arguments="{}")),
        result(),
        SYSTEM,
        result("call00002"),
        USER,
    ],
    "two systems": [SYSTEM, SYSTEM, USER],
    "a system as the last": [USER, SYSTEM],
    "a result that is answered by a user": [USER, CALL, result(), USER],
    "a result as the last": [USER, CALL, result()],
    "a call without a result": [USER, CALL, USER],
    "a call as the last": [USER, CALL],
    "two calls at once": [
        USER,
        calling(call(arguments="{}"), call("call00002", arguments="{}")),
        result(),
        result("call00002"),
    ],
    "two calls, one after the other": [USER, CALL, result(), OTHER, result("call00002"), USER],
    "two calls in a row": [USER, CALL, OTHER, result(), result("call00002")],
    "a result twice": [USER, CALL, result(), result(), USER],
    "a result of another call": [USER, CALL, result("call00009"), USER],
    "a result alone": [result()],
    "a result that says nothing": [USER, CALL, replace(result(), content=""), ANSWER, USER],
    "reasoning, an answer and a call": [
        USER,
        replace(CALL, content="the answer", reasoning_content="the reasoning"),
        result(),
        USER,
    ],
    "reasoning alone": [USER, replace(SILENT, reasoning_content="the reasoning"), USER],
    "an empty user": [USER, ANSWER, replace(USER, content="")],
    "a call after an answer": [USER, ANSWER, CALL, result(), USER],
}


def texts_of(source: str) -> Iterator[tuple[str, Turns, str]]:
    """Each history and its text, with tools and without."""
    template = ChatTemplate(
        source,
        bos_text="<s>",
        eos_text="</s>",
        clock=lambda: datetime(2031, 7, 9, 12),
        timer=lambda: 0.0,
    )
    for name, messages in HISTORIES.items():
        for tools in (None, TOOLS):
            yield name, messages, template.render(messages, tools=tools, thinking=None).text


@pytest.mark.parametrize("name", INVENTED)
def test_invented_templates_show_any_history(name: str) -> None:
    for history, messages, text in texts_of(INVENTED[name]):
        for message in messages:
            assert text.count(message.text) >= messages.count(message), f"{history}: {text}"
            for each in message.tool_calls or ():
                assert each.get("function", {}).get("name", "") in text, f"{history}: {text}"


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="python -m bench.source fetches the templates")
@pytest.mark.parametrize("path", sorted(PUBLIC.glob("*.jinja")), ids=lambda path: path.stem)
def test_public_templates_show_any_history(path: Path) -> None:
    if path.stem in BROKEN:
        pytest.skip("it fails on any conversation")
    for history, messages, text in texts_of(path.read_text()):
        for message in (USER, ANSWER):
            assert text.count(message.text) >= messages.count(message), f"{history}: {text}"
