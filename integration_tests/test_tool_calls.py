"""Reasoning and tool calls of the demo model, by the native API and the official client."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
import pytest_asyncio

from integration_tests.corpus import Case, cases, generate
from integration_tests.daemons import DEADLINE, Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODEL = "arriero-demo"
DEMO_TEMPLATE = Path(__file__).parent.parent / "demo" / "template.jinja"
METRIC = {
    "type": "object",
    "properties": {
        "name": {"enum": ["busy_slots", "queue_length"]},
        "note": {"type": "string", "maxLength": 12},
        "last": {"type": "integer", "minimum": 1, "maximum": 60},
    },
    "required": ["name", "note", "last"],
}


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        timeout=DEADLINE, base_url=f"{shared_fleet.inference}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


def calling(*, thinking: bool, num: int = 6) -> list[Case]:
    return [case for case in cases() if case.calls and bool(case.reasoning) == thinking][:num]


def thoughtful(num: int = 6) -> list[Case]:
    return [case for case in cases() if case.reasoning and not case.calls][:num]


def chat_body(case: Case) -> dict[str, Any]:
    body = {"model": MODEL, **case.body}
    if body.pop("thinking", False):
        body["extra_body"] = {"chat_template_kwargs": {"enable_thinking": True}}
    return body


async def test_native_streams(shared_fleet: Fleet) -> None:
    asked = [*thoughtful(), *calling(thinking=False), *calling(thinking=True)]
    assert len(asked) == 18
    answers = await asyncio.gather(
        *(generate(shared_fleet.http, shared_fleet.inference, case.body) for case in asked)
    )
    for case, answer in zip(asked, answers, strict=True):
        assert (answer.text, answer.reasoning) == (case.answer, case.reasoning), case.id
        assert answer.calls == case.calls, case.id
        assert answer.of_kind("tool_call") == "".join(call["arguments"] for call in case.calls)
        started = [e["call"] for e in answer.events if e["event"] == "tool_call_started"]
        called = [e["call"] for e in answer.events if e["event"] == "tool_call"]
        assert started == [{"id": call["id"], "name": call["name"]} for call in called]
        assert answer.end["finish_reason"] == ("tool_calls" if case.calls else "stop")
        usage = answer.end["usage"]
        assert 0 < usage["reasoning_tokens"] < usage["completion_tokens"] or not case.reasoning


async def test_native_in_one_piece(shared_fleet: Fleet) -> None:
    case = calling(thinking=True)[0]
    async with shared_fleet.http.post(
        f"{shared_fleet.inference}/api/v1/generate", json=case.body | {"stream": False}
    ) as response:
        answer = await response.json()
    assert answer["text"] == case.answer
    assert answer["reasoning"] == case.reasoning
    calls = [{"name": c["name"], "arguments": c["arguments"]} for c in answer["tool_calls"]]
    assert tuple(calls) == case.calls
    assert answer["finish_reason"] == "tool_calls"


async def test_raw_prompts_are_not_told_apart(shared_fleet: Fleet) -> None:
    """What the template leaves out of the prompt, the model writes itself."""
    case = thoughtful()[0]
    question = case.body["messages"][0]["content"]
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    answer = await generate(
        shared_fleet.http, shared_fleet.inference, {"prompt": prompt, "temperature": 0}
    )
    assert answer.text.startswith(f"{case.reasoning}\n</think>")
    assert answer.reasoning == ""


async def test_tools_that_must_not_be_called_are_not_shown(shared_fleet: Fleet) -> None:
    case = calling(thinking=False)[0]
    hidden = {key: value for key, value in case.body.items() if key != "tools"}
    refused = case.body | {"tool_choice": "none"}
    first, second = [
        await generate(shared_fleet.http, shared_fleet.inference, body)
        for body in (hidden, refused)
    ]
    assert first.calls == second.calls == ()
    assert first.text == second.text


async def test_openai_chat(client: openai.AsyncOpenAI) -> None:
    for case in [*thoughtful(2), *calling(thinking=False, num=2), *calling(thinking=True, num=2)]:
        answer = await client.chat.completions.create(**chat_body(case))
        choice = answer.choices[0]
        message = choice.message
        assert (message.content or "") == case.answer
        assert getattr(message, "reasoning_content", "") == case.reasoning
        functions = [call.function for call in message.tool_calls or ()]
        assert tuple({"name": f.name, "arguments": f.arguments} for f in functions) == case.calls
        assert choice.finish_reason == ("tool_calls" if case.calls else "stop")
        assert answer.usage is not None
        assert answer.usage.completion_tokens_details is not None
        assert bool(answer.usage.completion_tokens_details.reasoning_tokens) == bool(case.reasoning)


async def test_openai_chat_streamed(client: openai.AsyncOpenAI) -> None:
    for case in [*thoughtful(2), *calling(thinking=True, num=2)]:
        body = chat_body(case)
        content = reasoning = ""
        async with client.chat.completions.stream(**body) as stream:
            async for event in stream:
                if event.type == "chunk" and event.chunk.choices:
                    delta = event.chunk.choices[0].delta
                    content += delta.content or ""
                    reasoning += getattr(delta, "reasoning_content", None) or ""
            final = await stream.get_final_completion()
        assert (content, reasoning) == (case.answer, case.reasoning)
        calls = final.choices[0].message.tool_calls or []
        functions = [call.function for call in calls]
        assert tuple({"name": f.name, "arguments": f.arguments} for f in functions) == case.calls
        assert all(call.id and call.type == "function" for call in calls)
        assert final.choices[0].finish_reason == ("tool_calls" if case.calls else "stop")


async def test_a_call_comes_as_deltas(client: openai.AsyncOpenAI) -> None:
    """The number of deltas depends on how fast they are read."""
    case = next(
        case for case in calling(thinking=False, num=999) if len(case.calls[0]["arguments"]) > 12
    )
    stream = await client.chat.completions.create(**chat_body(case), stream=True)
    deltas = [
        call
        async for chunk in stream
        for choice in chunk.choices
        for call in choice.delta.tool_calls or ()
    ]
    assert deltas[0].id
    assert deltas[0].function is not None
    assert deltas[0].function.name == case.calls[0]["name"]
    assert deltas[0].function.arguments == ""
    assert [(each.index, each.id) for each in deltas[1:]] == [(0, None)] * (len(deltas) - 1)
    parts = [each.function.arguments or "" for each in deltas if each.function]
    assert "".join(parts) == case.calls[0]["arguments"]


async def test_a_conversation_goes_on_after_the_tools_result(client: openai.AsyncOpenAI) -> None:
    """The model's own call is sent back as the client gave it, with the result."""
    later = next(
        case
        for case in cases()
        if [m["role"] for m in case.body["messages"]] == ["user", "assistant", "tool"]
        and "tools" in case.body
        and case.answer
    )
    question, earlier, result = later.body["messages"]
    tools = later.body["tools"]
    first = await client.chat.completions.create(
        model=MODEL, messages=[question], tools=tools, temperature=0
    )
    message = first.choices[0].message
    assert message.tool_calls
    expected = earlier["tool_calls"][0]["function"]
    assert message.tool_calls[0].function.name == expected["name"]
    assert json.loads(message.tool_calls[0].function.arguments) == json.loads(expected["arguments"])
    second = await client.chat.completions.create(
        model=MODEL,
        messages=[
            question,
            message.model_dump(),
            {**result, "tool_call_id": message.tool_calls[0].id},
        ],
        tools=tools,
        tool_choice="auto",
        parallel_tool_calls=True,
        temperature=0,
    )
    assert second.choices[0].message.content == later.answer
    assert second.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("family", "prefix"), [("qwen", "{#- <function=name> #}"), ("glm", ""), ("gemma", "")]
)
async def test_calls_are_forced_in_notations_without_json(
    bare_fleet: Fleet, tmp_path: Path, family: str, prefix: str
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(prefix + DEMO_TEMPLATE.read_text())
    await bare_fleet.start_agent(slots=1, chat_template=template, chat_family=family)
    function = {"name": "get_metric", "parameters": METRIC}
    body = {
        "messages": [{"role": "user", "content": "How busy is the fleet?"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"name": "get_metric"},
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_tokens": 200,
    }
    answer = await generate(bare_fleet.http, bare_fleet.inference, body)
    (call,) = answer.calls
    assert (answer.text, answer.end["finish_reason"]) == ("", "tool_calls")
    assert call["name"] == "get_metric"
    jsonschema.validate(json.loads(call["arguments"]), METRIC)
    assert answer.of_kind("tool_call") == call["arguments"]
