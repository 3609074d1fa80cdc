"""The Messages API over a fake fleet runtime."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.api.anthropic.context_edits import CLEARED
from arriero.balancer.api.anthropic.conversation.compaction import HEADING
from arriero.balancer.api.anthropic.requests import parse_messages
from arriero.balancer.api.anthropic.routes import Edited, apply_edits
from arriero.balancer.api.app import inference_app
from arriero.balancer.api.transport.defaults import EARLY_HEADERS
from arriero.shared.errors import AgentLost, EngineFailed, InvalidRequest, QueueFull, QueueTimeout
from arriero.shared.inference import Failed, GenerateRequest, Token, Waiting
from arriero.shared.queries import Counted
from tests.balancer.api.anthropic.strict import (
    checked_beta_event,
    checked_beta_message,
    checked_error,
    checked_event,
    checked_message,
)
from tests.balancer.api.anthropic.test_context_edits import CALLS, THREE_TURNS
from tests.balancer.api.counting_runtime import CountingFleetRuntime
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo

BODY = {"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def runtime() -> FakeFleetRuntime:
    return FakeFleetRuntime(echo)


@pytest.fixture
async def client(runtime: FakeFleetRuntime) -> AsyncIterator[TestClient]:
    async with TestClient(TestServer(inference_app(runtime))) as client:
        yield client


async def ask(client: TestClient, **body: Any) -> tuple[int, Any, str]:
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "none"}
    async with client.post("/v1/messages", json=BODY | body, headers=headers) as response:
        return response.status, response.headers, await response.text()


def events(text: str) -> list[dict[str, Any]]:
    told = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


async def test_an_answer_in_one_piece(client: TestClient) -> None:
    status, headers, text = await ask(client)
    message = checked_message(json.loads(text))
    assert (status, f"msg_{headers['request-id']}") == (200, message.id)
    assert [block.model_dump()["text"] for block in message.content] == ["you said: hi"]
    assert message.model == "demo"


async def test_a_stream(client: TestClient) -> None:
    status, headers, text = await ask(client, stream=True)
    assert (status, headers["Content-Type"]) == (200, "text/event-stream")
    told = events(text)
    assert told[0]["message"]["id"] == f"msg_{headers['request-id']}"
    for event in told:
        checked_event(event)
    assert (told[0]["type"], told[-1]["type"]) == ("message_start", "message_stop")


async def test_errors_before_the_first_event_are_statuses(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    async def refused(**body: Any) -> tuple[int, str, Any]:
        status, headers, text = await ask(client, **body)
        error = checked_error(json.loads(text))
        assert error.request_id == headers["request-id"] == headers["X-Request-Id"]
        return status, error.error.type, headers

    assert (await refused(max_tokens=None))[:2] == (400, "invalid_request_error")
    runtime.refusals.append(QueueFull("full"))
    status, type, headers = await refused()
    assert (status, type) == (529, "overloaded_error")
    assert headers["Retry-After"]
    runtime.script = lambda _request: [Failed(EngineFailed("broke"))]
    for stream in (False, True):
        assert (await refused(stream=stream))[:2] == (500, "api_error")


async def test_one_that_waits_is_told_in_comments(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.script = lambda _request: [Waiting(1, "slot"), Failed(QueueTimeout("too long"))]
    status, _, text = await ask(client, stream=True)
    assert (status, runtime.tell_waiting) == (200, [EARLY_HEADERS])
    comment, _, rest = text.partition("\n\n")
    assert comment == ": waiting position=1 for=slot"
    assert [event["type"] for event in events(rest)][-1] == "error"
    assert events(rest)[-1]["error"] == {"type": "timeout_error", "message": "too long"}


async def test_errors_in_a_stream_are_events(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda _request: [Token("a"), Failed(AgentLost("gone"))]
    _, _, text = await ask(client, stream=True)
    assert events(text)[-1]["error"] == {"type": "api_error", "message": "gone"}


@pytest.mark.parametrize(
    ("method", "path", "status", "type"),
    [
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("POST", "/v1/messages/strange", 404, "not_found_error"),
    ],
)
async def test_what_is_not_there(
    client: TestClient, method: str, path: str, status: int, type: str
) -> None:
    async with client.request(method, path) as response:
        assert response.status == status
        error = checked_error(await response.json())
        assert (error.error.type, error.request_id) == (type, response.headers["request-id"])


async def test_fields_go_by_their_names_in_the_body(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    field = "tools[0].function.parameters.properties.a"
    failed = Failed(InvalidRequest(f"`{field}` cannot be served", field=field))
    runtime.script = lambda _request: [failed]
    _, _, text = await ask(client)
    message = json.loads(text)["error"]["message"]
    assert message == "`tools[0].input_schema.properties.a` cannot be served"


EDITS = {
    "edits": [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {
            "type": "clear_tool_uses_20250919",
            "keep": {"type": "tool_uses", "value": 1},
            "trigger": {"type": "input_tokens", "value": 5},
        },
    ]
}


async def test_context_edits_are_carried_out_and_told() -> None:
    runtime = CountingFleetRuntime((Counted(num_tokens=7),))
    runtime.script = echo
    url = "/v1/messages?beta=true"
    body = BODY | {"messages": CALLS, "context_management": EDITS}
    applied = {
        "applied_edits": [
            {
                "type": "clear_tool_uses_20250919",
                "cleared_tool_uses": 4,
                "cleared_input_tokens": 0,
            }
        ]
    }
    async with TestClient(TestServer(inference_app(runtime))) as client:
        async with client.post(url, json=body) as response:
            answer = checked_beta_message(await response.json())
        async with client.post(url, json=body | {"stream": True}) as response:
            told = events(await response.text())
        async with client.post("/v1/messages/count_tokens?beta=true", json=body) as response:
            counted = await response.json()
    assert answer.context_management is not None
    assert answer.context_management.to_dict() == applied
    for event in told:
        checked_beta_event(event)
    assert next(e for e in told if e["type"] == "message_delta")["context_management"] == applied
    results = [m.content for m in runtime.streams[0].request.messages or () if m.role == "tool"]
    assert results == [CLEARED] * 4 + ["result e"]
    assert counted == {"input_tokens": 7, "context_management": {"original_input_tokens": 7}}


async def test_edits_that_ask_for_nothing_cost_no_count() -> None:
    runtime = CountingFleetRuntime((Counted(num_tokens=7),))
    runtime.script = echo
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    async with (
        TestClient(TestServer(inference_app(runtime))) as client,
        client.post("/v1/messages", json=BODY | {"context_management": edits}) as response,
    ):
        assert (await response.json())["context_management"] == {"applied_edits": []}
    assert not runtime.questions


async def test_a_thread_is_continued(client: TestClient, runtime: FakeFleetRuntime) -> None:
    for stream in (False, True):
        _, headers, _ = await ask(client, thread={"type": "create"}, stream=stream)
        id = f"msg_{headers['request-id']}"
        for _ in range(2):  # an answer can be continued more than once
            thread = {"type": "continue", "previous_message_id": id}
            messages = [{"role": "user", "content": "and?"}]
            status, headers, _ = await ask(client, thread=thread, messages=messages)
            assert status == 200
            told = [m.content for m in runtime.streams[-1].request.messages or ()]
            assert told == ["hi", "you said: hi", "and?"]
        thread["previous_message_id"] = f"msg_{headers['request-id']}"
        await ask(client, thread=thread)
        told = [m.content for m in runtime.streams[-1].request.messages or ()]
        assert told == ["hi", "you said: hi", "and?", "you said: and?", "hi"]


async def test_an_unknown_thread_is_told_as_clients_want_it(client: TestClient) -> None:
    _, headers, _ = await ask(client)
    for id in ("msg_strange", f"msg_{headers['request-id']}"):  # what was not asked for is not kept
        thread = {"type": "continue", "previous_message_id": id}
        status, _, text = await ask(client, thread=thread)
        error = checked_error(json.loads(text)).error
        assert (status, error.type) == (404, "not_found_error")
        assert json.loads(text)["error"]["details"] == {"error_code": "thread_not_found"}
        assert "thread.previous_message_id" in error.message


async def test_a_failed_answer_leaves_no_thread(
    client: TestClient, runtime: FakeFleetRuntime
) -> None:
    runtime.script = lambda _request: [Token("a"), Failed(AgentLost("gone"))]
    _, headers, _ = await ask(client, thread={"type": "create"}, stream=True)
    thread = {"type": "continue", "previous_message_id": f"msg_{headers['request-id']}"}
    assert (await ask(client, thread=thread))[0] == 404


async def test_a_conversation_is_summarized(client: TestClient, runtime: FakeFleetRuntime) -> None:
    for stream in (False, True):
        requested = {"compaction": {"type": "summarize"}, "thread": {"type": "create"}}
        _, headers, text = await ask(client, **requested, stream=stream)
        asked = runtime.streams[-1].request
        summary = f"you said: {(asked.messages or ())[-1].text}"
        if stream:
            for event in events(text):
                checked_beta_event(event)
            delta = next(e for e in events(text) if e["type"] == "content_block_delta")["delta"]
            assert delta == {"type": "compaction_delta", "content": summary}
        else:
            message = checked_beta_message(json.loads(text))
            assert message.stop_reason == "compaction"
            assert [block.model_dump()["content"] for block in message.content] == [summary]
        thread = {"type": "continue", "previous_message_id": f"msg_{headers['request-id']}"}
        status, _, _ = await ask(client, thread=thread)
        (told,) = runtime.streams[-1].request.messages or ()
        assert (status, told.content) == (200, f"{HEADING}\n\n{summary}\n\nhi")


async def test_thinking_that_is_not_told(client: TestClient, runtime: FakeFleetRuntime) -> None:
    runtime.script = lambda request: [Token("hm", "reasoning"), *echo(request)]
    thinking = {"type": "adaptive", "display": "omitted"}
    _, _, text = await ask(client, thinking=thinking)
    thought, said = checked_message(json.loads(text)).content
    assert (thought.type, thought.model_dump()["thinking"]) == ("thinking", "")
    assert said.model_dump()["text"] == "you said: hi"


async def test_counting() -> None:
    runtime = CountingFleetRuntime((Counted(num_tokens=7),))
    body = {name: value for name, value in BODY.items() if name != "max_tokens"}
    async with (
        TestClient(TestServer(inference_app(runtime))) as client,
        client.post("/v1/messages/count_tokens", json=body) as response,
    ):
        assert await response.json() == {"input_tokens": 7}
        assert response.headers["request-id"]


async def test_the_tier_that_was_used_is_told(client: TestClient) -> None:
    for asked in ("auto", "standard_only"):
        _, _, text = await ask(client, service_tier=asked)
        assert json.loads(text)["usage"]["service_tier"] == "standard"
    _, _, text = await ask(client, stream=True)
    assert events(text)[0]["message"]["usage"]["service_tier"] == "standard"
    status, _, text = await ask(client, service_tier="flex")
    assert status == 400
    assert "service_tier" in json.loads(text)["error"]["message"]


T = TypeVar("T")

THINKING = {"type": "clear_thinking_20251015"}
RESULTS = {"type": "clear_tool_uses_20250919"}


class Counter:
    """Counts characters of results and thoughts."""

    def __init__(self) -> None:
        self.num_counted = 0

    async def count(self, request: GenerateRequest) -> int:
        self.num_counted += 1
        messages = request.messages or ()
        texts = [m.content for m in messages if m.role == "tool" and m.content != CLEARED]
        thoughts = [message.reasoning_content or "" for message in messages]
        return sum(len(each) for each in (*texts, *thoughts) if isinstance(each, str))


async def at_once(work: Callable[[], T], /) -> T:
    return work()


async def edited(
    counter: Counter, conversation: list[dict[str, Any]], *edits: dict[str, Any]
) -> Edited:
    body = {"max_tokens": 5, "messages": conversation, "context_management": {"edits": edits}}
    requested = parse_messages(json.dumps(body).encode())
    conversation = requested.conversation()
    return await apply_edits(
        conversation.messages,
        requested.edits,
        run=at_once,
        build=lambda messages: requested.request(replace(conversation, messages=messages)),
        count=counter.count,
    )


async def test_what_clears_nothing_is_not_counted() -> None:
    counter = Counter()
    done = await edited(counter, CALLS, THINKING)
    assert (done.applied, done.num_tokens, counter.num_counted) == ([], None, 0)


async def test_edits_one_after_the_other() -> None:
    counter = Counter()
    keep = {"type": "tool_uses", "value": 1}
    trigger = {"type": "input_tokens", "value": 17}
    done = await edited(
        counter, THREE_TURNS, THINKING, {**RESULTS, "keep": keep, "trigger": trigger}
    )
    assert done.applied == [
        {
            "type": "clear_thinking_20251015",
            "cleared_thinking_turns": 2,
            "cleared_input_tokens": 6,
        },
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1, "cleared_input_tokens": 8},
    ]
    assert (done.original_tokens, done.num_tokens, counter.num_counted) == (24, 10, 3)
    results = [m.content for m in done.request.messages or () if m.role == "tool"]
    assert results == [CLEARED, "result b"]


@pytest.mark.parametrize(("value", "is_applied"), [(39, True), (40, False)])
async def test_a_trigger_in_tokens_has_to_be_exceeded(value: int, is_applied: bool) -> None:
    trigger = {"type": "input_tokens", "value": value}
    done = await edited(Counter(), CALLS, {**RESULTS, "trigger": trigger})
    assert (done.original_tokens, bool(done.applied)) == (40, is_applied)


@pytest.mark.parametrize(("value", "is_applied"), [(16, True), (17, False)])
async def test_an_edit_that_saves_too_little_is_not_applied(value: int, is_applied: bool) -> None:
    edit = {
        **RESULTS,
        "trigger": {"type": "tool_uses", "value": 3},
        "clear_at_least": {"type": "input_tokens", "value": value},
    }
    done = await edited(Counter(), CALLS, edit)
    assert bool(done.applied) is is_applied
    results = [m.content for m in done.request.messages or () if m.role == "tool"]
    assert results.count(CLEARED) == (2 if is_applied else 0)
