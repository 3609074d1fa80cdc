"""Conversations to render chat templates with, as OpenAI's clients send them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'The weather <now> & "later", in °C.',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Where."},
                    "days": {"type": "integer", "description": "How far ahead.", "default": 1},
                    "unit": {"type": "string", "enum": ["C", "F"], "description": "Which."},
                    "only": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "No more than that.",
                    },
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


@dataclass(frozen=True, slots=True)
class Conversation:
    """`options` are variables of the template beyond messages and tools."""

    messages: tuple[Message, ...]
    tools: list[dict[str, Any]] | None = None
    thinking: bool | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    goes_on: bool = False


def _said(role: str, content: str, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def _result(number: int, name: str, content: str) -> Message:
    return _said("tool", content, tool_call_id=f"call0000{number}", name=name)


SYSTEM = _said("system", "  Be brief & <kind>.\n")
ASKED = _said("user", "What is 1 < 2 & “3”? ☃\n")
ANSWERED = _said("assistant", "\nTrue.  ")
THOUGHT = _said("assistant", "True.", reasoning_content="\nOne is less.\n")
WEATHER = _said("user", "Oslo?")
CALLED = _said(
    "assistant", "", tool_calls=[_call(1, "get_weather", {"city": "Ōslo", "only": ["a<b"]})]
)
CALLED_ALOUD = {**CALLED, "content": "Let me look.", "reasoning_content": "I need to look."}
RESULT = _result(1, "get_weather", '{"sky": "clear", "°C": -3}')
CALLED_TWICE = _said(
    "assistant",
    "",
    tool_calls=[_call(1, "get_weather", {"city": "Oslo", "days": 3}), _call(2, "now", {})],
)
REPLY = _said("assistant", "It is clear.")
MORE = _said("user", "And tomorrow?")
DOCUMENTS = [{"title": "Sky", "text": "It is clear.", "doc_id": "1"}]

CONVERSATIONS = {
    "plain": Conversation((ASKED,)),
    "system": Conversation((SYSTEM, ASKED)),
    "turns": Conversation((ASKED, ANSWERED, MORE)),
    "system and turns": Conversation((SYSTEM, ASKED, ANSWERED, MORE, REPLY, ASKED)),
    "whole": Conversation((ASKED, ANSWERED), add_generation_prompt=False),
    "thinking": Conversation((ASKED,), thinking=True),
    "not thinking": Conversation((ASKED,), thinking=False),
    "thought": Conversation((ASKED, THOUGHT, MORE)),
    "thought, thinking": Conversation((SYSTEM, ASKED, THOUGHT, MORE), thinking=True),
    "tools": Conversation((ASKED,), TOOLS),
    "system and tools": Conversation((SYSTEM, ASKED), TOOLS),
    "tools, not thinking": Conversation((SYSTEM, ASKED), TOOLS, thinking=False),
    "call": Conversation((WEATHER, CALLED), TOOLS, add_generation_prompt=False),
    "result": Conversation((WEATHER, CALLED, RESULT), TOOLS),
    "result, thinking": Conversation((SYSTEM, WEATHER, CALLED, RESULT), TOOLS, thinking=True),
    "call aloud": Conversation((WEATHER, CALLED_ALOUD, RESULT), TOOLS),
    "result and turns": Conversation((SYSTEM, WEATHER, CALLED, RESULT, REPLY, MORE), TOOLS),
    "calls in a row": Conversation((WEATHER, CALLED, RESULT, CALLED_ALOUD, RESULT), TOOLS),
    "parallel calls": Conversation(
        (WEATHER, CALLED_TWICE, RESULT, _result(2, "now", "12:00"), REPLY, MORE), TOOLS
    ),
    "result without tools": Conversation((WEATHER, CALLED, RESULT)),
    "documents": Conversation((ASKED,), options={"documents": DOCUMENTS}),
    "going on": Conversation((ASKED, ANSWERED), goes_on=True, add_generation_prompt=False),
    "going on after turns": Conversation(
        (SYSTEM, ASKED, REPLY, MORE, THOUGHT), goes_on=True, add_generation_prompt=False
    ),
}
