import asyncio
import json
from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.api.transport.defaults import EARLY_HEADERS
from arriero.balancer.api.transport.http import native_error
from arriero.balancer.api.transport.waiting import EVENTS_AFTER
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.errors import (
    AgentLost,
    InvalidRequest,
    ModelNotFound,
    PromptTooLong,
    QueueFull,
    QueueTimeout,
    ShuttingDown,
)
from arriero.shared.inference import Begun, Failed, Notice, Token, Waiting
from arriero.shared.queries import Tokenize, Tokenized
from tests.balancer import documents
from tests.balancer.api.fake_runtime import TIMINGS, FakeFleetRuntime, done, echo

DONE = {
    "finish_reason": "stop",
    "usage": {
        "prompt_tokens": 7,
        "cached_tokens": 0,
        "completion_tokens": 2,
        "reasoning_tokens": 0,
    },
    "timings": {
        "queue_ms": 1.0,
        "first_token_ms": 2.0,
        "total_ms": 3.0,
        "prefill_tokens_per_second": None,
        "decode_tokens_per_second": TIMINGS.decode_tokens_per_second,
        "moves": TIMINGS.moves,
    },
    "agent": "agent-1",
}


async def post(client: TestClient, path: str, body: Any, **headers: str) -> tuple[Any, bytes]:
    response = await client.post(f"/api/v1/{path}", json=body, headers=headers)
    return response, await response.read()


def lines(body: bytes) -> list[dict[str, Any]]:
    assert body.endswith(b"\n")
    return [json.loads(line) for line in body.splitlines()]


async def test_streams_ndjson(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.script = echo
    response, body = await post(client, "generate", {"prompt": "Käse\n\u2028"})
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/x-ndjson"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert response.headers["X-Request-Id"] == "req-0"
    assert lines(body) == [
        {"event": "token", "id": "req-0", "kind": "content", "text": "you said: "},
        {"event": "token", "id": "req-0", "kind": "content", "text": "Käse\n\u2028"},
        {"event": "done", "id": "req-0"} | DONE,
    ]


async def test_streams_sse(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.script = echo
    response, body = await post(client, "generate", {"prompt": "a\nb"}, Accept="text/event-stream")
    assert response.headers["Content-Type"] == "text/event-stream"
    events = body.decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    assert [json.loads(event[6:])["event"] for event in events] == ["token", "token", "done"]


async def test_tokens_arrive_as_they_come(runtime: FakeFleetRuntime, client: TestClient) -> None:
    asked = asyncio.create_task(client.post("/api/v1/generate", json={"prompt": "x"}))
    (stream,) = await runtime.opened()
    stream.say(Token("one"))
    response = await asked
    assert json.loads(await response.content.readline())["text"] == "one"
    stream.say(Token("two", "reasoning"), Notice("slow", "it will take a while"))
    assert json.loads(await response.content.readline())["kind"] == "reasoning"
    assert json.loads(await response.content.readline()) == {
        "event": "warning",
        "id": "req-0",
        "code": "slow",
        "message": "it will take a while",
    }
    stream.say(done("length"))
    assert json.loads(await response.content.readline())["finish_reason"] == "length"
    assert await response.content.read() == b""


async def test_in_one_piece(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.script = lambda _: [
        Token("hm", "reasoning"),
        Token("yes"),
        Token(" sir"),
        Notice("a", "b"),
        done(),
    ]
    response, body = await post(client, "generate", {"prompt": "x", "stream": False})
    assert response.headers["X-Request-Id"] == "req-0"
    assert json.loads(body) == DONE | {
        "id": "req-0",
        "text": "yes sir",
        "reasoning": "hm",
        "warnings": [{"code": "a", "message": "b"}],
    }


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PromptTooLong("9 tokens, at most 8", field="prompt"), 400),
        (QueueTimeout("waited for 30 s"), 504),
        (AgentLost("gone"), 502),
    ],
)
async def test_an_error_before_the_first_event_is_a_status(
    runtime: FakeFleetRuntime, client: TestClient, stream: bool, error: Any, status: int
) -> None:
    runtime.script = lambda _: [Failed(error)]
    response, body = await post(client, "generate", {"prompt": "x", "stream": stream})
    assert (response.status, response.headers["X-Request-Id"]) == (status, "req-0")
    expected = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.field:
        expected["field"] = error.field
    assert json.loads(body) == {"error": expected}


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (QueueFull("256 are waiting"), 503, "1"),
        (QueueFull("256 are waiting", retry_after=2.5), 503, "3"),
        (ShuttingDown("draining"), 503, None),
        (ModelNotFound("none serves 'x'", field="model"), 404, None),
    ],
)
async def test_a_refusal_is_a_status(
    runtime: FakeFleetRuntime, client: TestClient, error: Any, status: int, retry_after: str
) -> None:
    runtime.refusals = [error]
    response, body = await post(client, "generate", {"prompt": "x"})
    assert (response.status, response.headers.get("Retry-After")) == (status, retry_after)
    assert json.loads(body)["error"]["code"] == error.code


async def test_progress_that_shows_nothing_leaves_the_status_open(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    silent = Token("", "reasoning", (1,))
    runtime.script = lambda _: [Begun(3, 0), silent, Failed(AgentLost("gone"))]
    response, _ = await post(client, "generate", {"prompt": "hi"})
    assert response.status == 502


async def test_one_that_waits_is_told(runtime: FakeFleetRuntime, client: TestClient) -> None:
    told = [Waiting(3, "slot"), Waiting(1, "model", 2.0, "agent a is still loading the model")]
    runtime.script = lambda _: [*told, Token("a"), done()]
    response, body = await post(client, "generate", {"prompt": "x"})
    assert response.status == 200
    assert lines(body)[:2] == [
        {"event": "waiting", "id": "req-0", "position": 3, "for": "slot"}
        | {"seconds_left": None, "reason": None},
        {"event": "waiting", "id": "req-0", "position": 1, "for": "model"}
        | {"seconds_left": 2.0, "reason": "agent a is still loading the model"},
    ]
    assert [line["event"] for line in lines(body)[2:]] == ["token", "done"]


async def test_an_error_after_a_wait_is_the_last_event(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = lambda _: [Waiting(1, "slot"), Failed(QueueTimeout("too long"))]
    response, body = await post(client, "generate", {"prompt": "x"})
    assert response.status == 200
    assert lines(body)[-1]["error"]["code"] == "queue_timeout"


@pytest.mark.parametrize(
    ("stream", "after"), [(True, [EARLY_HEADERS, EVENTS_AFTER]), (False, [None, None])]
)
async def test_only_streams_ask_to_be_told(
    runtime: FakeFleetRuntime, client: TestClient, stream: bool, after: list[float | None]
) -> None:
    runtime.script = echo
    await post(client, "generate", {"prompt": "x", "stream": stream})
    requests = [{"id": "a", "prompt": "x"}]
    await post(client, "generate_batch", {"requests": requests, "stream": stream})
    assert runtime.tell_waiting == after


async def test_a_client_may_prefer_to_be_told_earlier(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = echo
    await post(client, "generate", {"prompt": "x"}, Prefer="wait=1")
    assert runtime.tell_waiting == [1.0]


async def test_a_full_queue_says_what_place_there_would_have_been(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.refusals = [QueueFull("full", position=9), QueueFull("off")]
    headers = [(await post(client, "generate", {"prompt": "x"}))[0].headers for _ in range(2)]
    assert [each.get("X-Queue-Position") for each in headers] == ["9", None]


async def test_an_error_after_a_token_is_the_last_event(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = lambda _: [Token("a"), Failed(AgentLost("gone"))]
    response, body = await post(client, "generate", {"prompt": "x"})
    assert response.status == 200
    assert lines(body)[-1] == {
        "event": "error",
        "id": "req-0",
        "error": {"code": "agent_lost", "message": "gone", "retryable": True},
    }


async def test_an_error_after_a_token_is_a_status_in_one_piece(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = lambda _: [Token("a"), Failed(AgentLost("gone"))]
    response, _ = await post(client, "generate", {"prompt": "x", "stream": False})
    assert response.status == 502


# ---- what takes no slot


async def test_a_question_is_answered_in_one_piece(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.answers = lambda _question: (Tokenized(tokens=(1, 2)),)
    response, body = await post(client, "tokenize", {"text": "ab", "model": "m"})
    assert response.status == 200
    assert json.loads(body) == {"id": "q-0", "tokens": [1, 2], "num_tokens": 2}
    assert response.headers["X-Request-Id"] == "q-0"
    assert runtime.questions == [QueryRequest(kind="text", parts=(Tokenize(text="ab"),), model="m")]


async def test_its_errors_are_statuses(runtime: FakeFleetRuntime, client: TestClient) -> None:
    runtime.refusals = [ModelNotFound("nobody")]
    response, _ = await post(client, "embed", {"input": "a"})
    assert response.status == 404
    assert "X-Request-Id" not in response.headers
    runtime.answers = lambda _question: QueueTimeout("late")
    response, body = await post(client, "embed", {"input": "a"})
    assert (response.status, response.headers["X-Request-Id"]) == (504, "q-0")
    assert json.loads(body)["error"]["code"] == "queue_timeout"
    response, _ = await post(client, "count_tokens", {})
    assert response.status == 400


# ---- batches


async def test_batch_streams_under_the_clients_ids(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = echo
    entries = [{"id": 'a"', "prompt": "A"}, {"prompt": "B"}]
    response, body = await post(client, "generate_batch", {"requests": entries})
    assert response.status == 200
    events = lines(body)
    texts = {
        id: "".join(e["text"] for e in events if e["id"] == id and e["event"] == "token")
        for id in ('a"', "1")
    }
    assert texts == {'a"': "you said: A", "1": "you said: B"}
    assert sorted(e["id"] for e in events if e["event"] == "done") == ["1", 'a"']
    assert len(events) == 7
    assert (events[-1]["event"], events[-1]["id"]) == ("batch_done", None)
    statistics = events[-1]["statistics"]
    assert (statistics["requests"], statistics["failed"]) == (2, 0)
    assert (statistics["prompt_tokens"], statistics["completion_tokens"]) == (14, 4)


async def test_batch_in_one_piece_keeps_the_order(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    body = {"requests": [{"prompt": str(number)} for number in range(3)], "stream": False}
    asked = asyncio.create_task(client.post("/api/v1/generate_batch", json=body))
    first, second, third = await runtime.opened(3)
    third.say(Token("3"), done())
    second.say(Failed(AgentLost("gone")))
    first.say(Token("1"), done())
    answer = await (await asked).json()
    assert answer["results"] == [
        {"id": "0", "text": "1"} | DONE,
        {"id": "1", "error": {"code": "agent_lost", "message": "gone", "retryable": True}},
        {"id": "2", "text": "3"} | DONE,
    ]
    assert (answer["statistics"]["requests"], answer["statistics"]["failed"]) == (3, 1)
    assert answer["statistics"]["total_ms"] > 0


async def test_batch_entry_that_the_queue_refuses(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    runtime.script = echo
    runtime.refusals = [None, QueueFull("full"), None]
    body = {"requests": [{"prompt": "A"}, {"prompt": "B"}, {"prompt": "C"}]}
    response, answer = await post(client, "generate_batch", body)
    assert response.status == 200
    ends = {e["id"]: e for e in lines(answer) if e["event"] not in ("token", "batch_done")}
    assert {id: end["event"] for id, end in ends.items()} == {
        "0": "done",
        "1": "error",
        "2": "done",
    }
    assert ends["1"]["error"]["code"] == "queue_full"


async def test_batch_is_validated_before_anything_runs(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    body = {"requests": [{"prompt": "A"}, {"prompt": "B", "top_p": 2}]}
    response, answer = await post(client, "generate_batch", body)
    assert response.status == 400
    assert json.loads(answer)["error"]["field"] == "requests[1].top_p"
    assert runtime.streams == []


# ---- as described

DOCUMENT = documents.inference()


def test_errors_are_described() -> None:
    schema = {"$ref": "#/components/schemas/ErrorAnswer", "components": DOCUMENT["components"]}
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(native_error(QueueFull("later")))
    validator.validate(native_error(InvalidRequest("wrong", field="prompt")))
    responses = DOCUMENT["paths"]["/api/v1/generate"]["post"]["responses"]
    assert "`queue_full`" in responses["503"]["description"]


def test_a_stream_says_what_its_lines_are() -> None:
    answer = DOCUMENT["paths"]["/api/v1/generate"]["post"]["responses"]["200"]["content"]
    item = {"$ref": "#/components/schemas/NativeEvent"}
    assert answer["application/x-ndjson"] == answer["text/event-stream"] == {"x-item-schema": item}
    assert answer["application/json"]["schema"] == {"$ref": "#/components/schemas/Answer"}
