"""The official `anthropic` client against a real fleet."""

import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
import pytest_asyncio
from anthropic.types import Message

from integration_tests.corpus import LONG_CONTEXT, Case, cases, plain_cases
from integration_tests.daemons import DEADLINE, Fleet
from integration_tests.daemons import MODEL as MODEL_FILE
from tests.balancer.api.anthropic.strict import checked_event, checked_message

MODEL = "arriero-demo"


pytestmark = pytest.mark.asyncio(loop_scope="session")


def connected(fleet: Fleet) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        timeout=DEADLINE, base_url=fleet.inference, api_key="none", max_retries=0
    )


@pytest_asyncio.fixture(loop_scope="session")
async def client(shared_fleet: Fleet) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with connected(shared_fleet) as client:
        yield client


def asked(case: Case) -> dict[str, Any]:
    """A case as the Messages API asks it; `temperature` is no longer one of the client's own."""
    body: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 1000,
        "messages": case.body["messages"],
        "extra_body": {"temperature": 0},
    }
    if case.body.get("thinking"):
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    if tools := case.body.get("tools"):
        body["tools"] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "input_schema": tool["function"]["parameters"],
            }
            for tool in tools
        ]
    return body


async def _answered(**_input: Any) -> str:
    """What every tool returns."""
    return "4"


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def check_whole(message: Message, case: Case) -> None:
    thoughts = [block.thinking for block in message.content if block.type == "thinking"]
    calls = [block for block in message.content if block.type == "tool_use"]
    assert text_of(message) == case.answer
    assert "".join(thoughts) == case.reasoning
    assert [(call.name, call.input) for call in calls] == [
        (call["name"], json.loads(call["arguments"])) for call in case.calls
    ]
    assert message.stop_reason == ("tool_use" if case.calls else "end_turn")
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0
    assert message.usage.output_tokens > 0


CASES = {
    "plain": lambda: plain_cases()[3],
    "thinking": lambda: next(case for case in cases() if case.reasoning and not case.calls),
    "calling": lambda: next(case for case in cases() if case.calls and not case.reasoning),
    "both": lambda: next(case for case in cases() if case.calls and case.reasoning),
    "turns": lambda: next(
        case
        for case in cases()
        if len(case.body["messages"]) >= 3 and not {"tools", "thinking"} & case.body.keys()
    ),
}


async def test_answers_and_streams(client: anthropic.AsyncAnthropic) -> None:
    for case in (find() for find in CASES.values()):
        raw = await client.messages.with_raw_response.create(**asked(case))
        assert raw.headers["request-id"]
        check_whole(checked_message(json.loads(await raw.text())), case)

        async with client.messages.stream(**asked(case)) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text == case.answer
        check_whole(final, case)


async def test_every_event_is_one_that_the_client_knows(shared_fleet: Fleet) -> None:
    body = asked(CASES["both"]())
    body |= {"stream": True, **body.pop("extra_body")}
    url = f"{shared_fleet.inference}/v1/messages"
    async with shared_fleet.http.post(url, json=body) as response:
        lines = (await response.text()).splitlines()
    events = [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: ")]
    for event in events:
        checked_event(event)
    types = [event["type"] for event in events]
    assert types[:2] == ["message_start", "ping"]
    assert types[-2:] == ["message_delta", "message_stop"]
    assert types.count("content_block_start") == types.count("content_block_stop")
    first, last = events[0]["message"]["usage"], events[-2]["usage"]
    assert first["input_tokens"] + first["cache_read_input_tokens"] > 0
    counts = ("input_tokens", "cache_read_input_tokens")
    assert [first[count] for count in counts] == [last[count] for count in counts]


async def test_what_was_cached_is_told(client: anthropic.AsyncAnthropic) -> None:
    case = CASES["turns"]()
    first = await client.messages.create(**asked(case))
    second = await client.messages.create(**asked(case))
    assert second.usage.cache_read_input_tokens
    for each in (first, second):
        assert each.usage.cache_read_input_tokens is not None
    assert (
        first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
        == second.usage.input_tokens + second.usage.cache_read_input_tokens
    )


async def test_models(client: anthropic.AsyncAnthropic) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    model = await client.models.retrieve(MODEL)
    assert (model.id, model.max_input_tokens) == (MODEL, 2048)


async def test_counting(client: anthropic.AsyncAnthropic) -> None:
    for case in (CASES["turns"](), CASES["both"]()):
        body = asked(case)
        message = await client.messages.create(**body)
        del body["max_tokens"], body["extra_body"]
        counted = await client.messages.count_tokens(**body)
        cached = message.usage.cache_read_input_tokens or 0
        assert counted.input_tokens == message.usage.input_tokens + cached


async def test_a_call_goes_to_and_fro(client: anthropic.AsyncAnthropic) -> None:
    case = next(
        case
        for case in cases()
        if [m["role"] for m in case.body["messages"]] == ["user", "assistant", "tool"]
        and "tools" in case.body
        and "thinking" not in case.body
        and case.answer
    )
    question, _, result = case.body["messages"]
    body = asked(case) | {"messages": [question]}
    first = await client.messages.create(**body)
    (call,) = [block for block in first.content if block.type == "tool_use"]
    told = {"type": "tool_result", "tool_use_id": call.id, "content": result["content"]}
    messages = [
        question,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [told]},
    ]
    second = await client.messages.create(**body | {"messages": messages})
    assert text_of(second) == case.answer
    assert second.stop_reason == "end_turn"


async def test_the_tool_runner_continues_a_thread(
    client: anthropic.AsyncAnthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(
        case
        for case in cases()
        if case.calls and not case.reasoning and len(case.body["messages"]) == 1
    )
    sent: list[dict[str, Any]] = []
    statuses: list[int] = []

    async def note(response: httpx.Response) -> None:
        sent.append(json.loads(response.request.content))
        statuses.append(response.status_code)

    client._client.event_hooks["response"].append(note)
    body = asked(case)
    (definition, *_) = [tool for tool in body.pop("tools") if tool["name"] == case.calls[0]["name"]]
    tool = anthropic.beta_async_tool(
        _answered,
        name=definition["name"],
        description=definition["description"],
        input_schema=definition["input_schema"],
    )
    try:
        runner = client.beta.messages.tool_runner(**body, tools=[tool], max_iterations=2)
        messages = [message async for message in runner]
    finally:
        client._client.event_hooks["response"].remove(note)
    assert statuses == [200, 200]
    assert [each["thread"]["type"] for each in sent] == ["create", "continue"]
    assert sent[1]["thread"]["previous_message_id"] == messages[0].id
    assert "tools" not in sent[1]
    (told,) = sent[1]["messages"]
    assert [block["type"] for block in told["content"]] == ["tool_result"]
    assert messages[1].usage.cache_read_input_tokens


async def test_a_lost_thread_is_replayed(client: anthropic.AsyncAnthropic) -> None:
    body = asked(plain_cases()[0])
    raw = {"thread": {"type": "continue", "previous_message_id": "msg_gone"}}
    with pytest.raises(anthropic.NotFoundError) as lost:
        await client.beta.messages.create(**body, **raw)
    assert lost.value.body["error"]["details"] == {"error_code": "thread_not_found"}


async def test_why_it_stopped(client: anthropic.AsyncAnthropic) -> None:
    case = plain_cases()[0]
    word = case.answer.split()[3]
    body = asked(case) | {"stop_sequences": ["no such text", word]}
    stopped = await client.messages.create(**body)
    assert text_of(stopped) == case.answer[: case.answer.index(word)]
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    async with client.messages.stream(**body) as stream:
        final = await stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", word)
    short = await client.messages.create(**asked(case) | {"max_tokens": 2})
    assert short.stop_reason == "max_tokens"
    assert short.usage.output_tokens == 2


async def test_errors(client: anthropic.AsyncAnthropic) -> None:
    body = asked(plain_cases()[0])
    with pytest.raises(anthropic.NotFoundError) as missing:
        await client.messages.create(**body | {"model": "no-such-model"})
    assert missing.value.type == "not_found_error"
    long = [{"role": "user", "content": "the balancer " * 3000}]
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.messages.create(**body | {"messages": long})
    assert refused.value.type == "invalid_request_error"
    assert refused.value.request_id
    picture = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]"):
        await client.messages.create(
            **body | {"messages": [{"role": "user", "content": [picture]}]}
        )


@pytest.mark.asyncio(loop_scope="function")
async def test_an_error_in_a_stream(fleet: Fleet, tmp_path: Path) -> None:
    # The engine does not come back, so the answer cannot go on.
    await fleet.start_balancer(buffered_request_timeout=2)
    path = shutil.copyfile(MODEL_FILE, tmp_path / MODEL_FILE.name)
    agent = await fleet.start_agent(context_size=LONG_CONTEXT, model=path)
    await agent.pace.hand_out(5)
    numbers = {"type": "array", "items": {"type": "integer"}, "minItems": 2000}
    tool = {"name": "count", "input_schema": {"type": "object", "properties": {"all": numbers}}}
    tool["input_schema"] |= {"required": ["all"]}
    endless = {"max_tokens": 10_000, "tools": [tool], "tool_choice": {"type": "any"}}
    async with connected(fleet) as client:
        stream = await client.messages.create(**asked(plain_cases()[0]) | endless, stream=True)
        await anext(aiter(stream))
        path.unlink()
        agent.signal_engine(signal.SIGKILL)
        with pytest.raises(anthropic.APIStatusError) as caught:
            async for _ in stream:
                pass
    assert caught.value.type == "api_error"


@pytest.mark.asyncio(loop_scope="function")
async def test_overload_is_the_clients_own_exception(fleet: Fleet) -> None:
    await fleet.start_balancer(max_buffered_requests=0)
    async with connected(fleet) as client:
        for stream in (False, True):
            with pytest.raises(anthropic.OverloadedError) as caught:
                await client.messages.create(**asked(plain_cases()[0]), stream=stream)
            error = caught.value
            assert (error.status_code, error.type) == (529, "overloaded_error")
            assert error.request_id == error.body["request_id"]
            assert error.response.headers["Retry-After"]
        with pytest.raises(anthropic.BadRequestError) as refused:
            await client.messages.create(model=MODEL, max_tokens=1, messages=[])
        assert refused.value.request_id
