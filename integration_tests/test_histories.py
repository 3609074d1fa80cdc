"""A conversation goes on after a call that was cut, over each API, with a strict template."""

import json
from pathlib import Path
from typing import Any

import pytest

from integration_tests.corpus import generate
from integration_tests.daemons import Fleet
from integration_tests.test_templates import DEMO_TEMPLATE

STRICT = """\
{%- for m in messages %}
    {%- if m.role == 'user' and not loop.first and loop.previtem.role == 'user' %}
        {{- raise_exception('two users in a row') }}
    {%- endif %}
    {%- if m.tool_calls is defined and not m.tool_calls %}
        {{- raise_exception('calls of nothing') }}
    {%- endif %}
    {%- for call in m.tool_calls or [] %}
        {%- if call.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}
        {%- for name, value in call.function.arguments.items() %}{% endfor %}
    {%- endfor %}
    {%- if m.role == 'tool' and m.tool_call_id | length != 9 %}
        {{- raise_exception('nine letters') }}
    {%- endif %}
{%- endfor %}
"""
TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 200}}}
PARAMETERS = {**TEXT, "required": ["text"], "additionalProperties": False}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "note", "parameters": PARAMETERS}}
]
QUESTION: dict[str, Any] = {"role": "user", "content": "What is a slot?"}
MODEL = "arriero-demo"

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def post(fleet: Fleet, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with fleet.http.post(f"{fleet.inference}{path}", json=body) as response:
        answer = await response.json()
        assert response.status == 200, f"{path}: {answer}"
        return dict(answer)


async def chat(fleet: Fleet) -> None:
    body = {"model": MODEL, "temperature": 0, "tools": TOOLS, "messages": [QUESTION]}
    forced = {**body, "tool_choice": "required", "max_tokens": 24}
    [choice] = (await post(fleet, "/v1/chat/completions", forced))["choices"]
    assert choice["finish_reason"] == "length"
    [call] = choice["message"]["tool_calls"]
    assert_cut(call["function"]["arguments"])
    result = {"role": "tool", "tool_call_id": call["id"], "content": "noted"}
    body["messages"] = [QUESTION, choice["message"], result]
    await post(fleet, "/v1/chat/completions", {**body, "max_tokens": 4})


async def responses(fleet: Fleet) -> None:
    function = {"type": "function", **TOOLS[0]["function"]}
    body = {"model": MODEL, "temperature": 0, "tools": [function], "input": [QUESTION]}
    forced = {**body, "tool_choice": "required", "max_output_tokens": 24}
    response = await post(fleet, "/v1/responses", forced)
    assert response["status"] == "incomplete"
    [call] = response["output"]
    assert_cut(call["arguments"])
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "noted"}
    for sent in (call, {"type": "item_reference", "id": call["id"]}):
        body["input"] = [QUESTION, sent, result]
        await post(fleet, "/v1/responses", {**body, "max_output_tokens": 4})


async def anthropic(fleet: Fleet) -> None:
    tool = {"name": "note", "input_schema": PARAMETERS}
    body = {"model": MODEL, "temperature": 0, "tools": [tool], "messages": [QUESTION]}
    forced = {**body, "tool_choice": {"type": "any"}, "max_tokens": 24}
    message = await post(fleet, "/v1/messages", forced)
    assert message["stop_reason"] == "max_tokens"
    [use] = message["content"]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "noted"}
    for input in (use["input"], '{"text": "cu', None):
        body["messages"] = [
            QUESTION,
            {"role": "assistant", "content": [{**use, "input": input}]},
            {"role": "user", "content": [result]},
        ]
        await post(fleet, "/v1/messages", {**body, "max_tokens": 4})


async def ollama(fleet: Fleet) -> None:
    for arguments in ({"text": "cu"}, '{"text": "cu', None):
        call = {"function": {"name": "note", "arguments": arguments}}
        body = {
            "model": MODEL,
            "stream": False,
            "options": {"num_predict": 4},
            "tools": TOOLS,
            "messages": [
                QUESTION,
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_name": "note", "content": "noted"},
            ],
        }
        await post(fleet, "/api/chat", body)


async def native(fleet: Fleet) -> None:
    body = {"temperature": 0, "tools": TOOLS, "messages": [QUESTION]}
    forced = {**body, "tool_choice": "required", "max_tokens": 24}
    answer = await generate(fleet.http, fleet.inference, forced)
    [call] = answer.calls
    assert_cut(call["arguments"])
    function = {"name": call["name"], "arguments": call["arguments"]}
    made = {"id": "call_00001", "type": "function", "function": function}
    body["messages"] = [
        QUESTION,
        {"role": "assistant", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_00001", "content": "noted"},
        {"role": "assistant", "content": "So be it.", "tool_calls": []},
        QUESTION,
        QUESTION,
    ]
    answer = await generate(fleet.http, fleet.inference, {**body, "max_tokens": 4})
    assert answer.status == 200
    [warning] = [event for event in answer.events if event["event"] == "warning"]
    assert warning["code"] == "messages_changed"
    assert "two users in a row" in warning["message"]


def assert_cut(arguments: str) -> None:
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(arguments)


async def test_a_call_that_was_cut_is_taken_back(bare_fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "strict.jinja"
    path.write_text(STRICT + DEMO_TEMPLATE.read_text())
    await bare_fleet.start_agent(chat_template=path)
    for converse in (chat, responses, anthropic, ollama, native):
        await converse(bare_fleet)
