"""One socket: calls, batches, cancels, and frames that are wrong."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.common.merge import open_all, or_refusal
from arriero.balancer.api.native.requests import RequestBatch
from arriero.balancer.api.native.web_socket import (
    MAX_LIVE_REQUESTS,
    LiveCall,
    LiveCalls,
    answer_batch,
    answer_generate,
)
from arriero.balancer.api.transport.bodies import MAX_BODY_BYTES
from arriero.shared.errors import AgentLost, InvalidRequest, QueueFull, RateLimited
from arriero.shared.inference import Failed, GenerateRequest, Notice, RequestId, Token, Waiting
from arriero.shared.queries import Tokenized
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done, echo
from tests.balancer.api.json_values import JSON_VALUES, objects_like
from tests.balancer.api.native.socket_calls import answers_ping, ask, call, event, until_answer


async def test_generate(runtime: FakeFleetRuntime, socket: ClientWebSocketResponse) -> None:
    await socket.send_json(call("r1", "generate", prompt="x"))
    (stream,) = await runtime.opened()
    stream.say(Token("a"), Token("b", "reasoning"), Notice("slow", "wait"), done("length"))
    assert await socket.receive_json() == event("r1", "token", kind="content", text="a")
    assert await socket.receive_json() == event("r1", "token", kind="reasoning", text="b")
    assert await socket.receive_json() == event("r1", "warning", code="slow", message="wait")
    answer = await socket.receive_json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", "r1")
    assert set(answer["result"]) == {"finish_reason", "usage", "timings", "agent"}
    assert answer["result"]["finish_reason"] == "length"


async def test_generate_in_one_piece(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script = echo
    await socket.send_json(call(1, "generate", prompt="x", stream=False))
    answer = await socket.receive_json()
    assert (answer["id"], answer["result"]["text"]) == (1, "you said: x")


async def test_errors_of_requests(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script = lambda _: [Token("a"), Failed(AgentLost("gone"))]
    assert (await ask(socket, "r1", "generate", prompt="x"))["error"] == {
        "code": -32000,
        "message": "gone",
        "data": {"code": "agent_lost", "retryable": True},
    }
    runtime.refusals = [QueueFull("full")]
    refused = await ask(socket, "r2", "generate", prompt="x")
    assert refused["error"]["data"] == {"code": "queue_full", "retryable": True}
    bad = await ask(socket, "r3", "generate", prompt="x", top_p=7)
    assert bad["error"]["code"] == -32602
    assert bad["error"]["data"]["field"] == "top_p"
    bad = await ask(socket, "r4", "generate", prompt="x", grammar={})
    assert bad["error"]["data"]["field"] == "grammar.type"
    bad = await ask(socket, "r5", "embed", input=7)
    assert bad["error"]["data"]["field"] == "input"


async def test_many_calls_at_once_of_any_id(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    ids = ["1", 1, 2.5, None, ""]
    for id in ids:
        await socket.send_json(call(id, "generate", prompt="x"))
    streams = await runtime.opened(len(ids))
    for stream, id in zip(streams, ids, strict=True):
        stream.say(Token("a"))
        assert await socket.receive_json() == event(id, "token", kind="content", text="a")
    for stream, id in reversed(list(zip(streams, ids, strict=True))):
        stream.say(done())
        assert (await socket.receive_json())["id"] == id


async def test_an_id_can_be_used_again_after_its_answer(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script = echo
    for _ in range(3):
        assert "result" in await ask(socket, "r", "generate", prompt="x")


async def test_a_live_id_is_refused_and_the_call_goes_on(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("r", "generate", prompt="x"))
    (stream,) = await runtime.opened()
    await socket.send_json(call("r", "generate", prompt="y"))
    refusal = await socket.receive_json()
    assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
    stream.say(done())
    assert (await until_answer(socket, "r"))["result"]["finish_reason"] == "stop"
    assert len(runtime.streams) == 1


async def test_batch(runtime: FakeFleetRuntime, socket: ClientWebSocketResponse) -> None:
    runtime.script = echo
    runtime.refusals = [None, QueueFull("full"), None]
    requests = [{"prompt": "A"}, {"id": "b", "prompt": "B"}, {"prompt": "C"}]
    await socket.send_json(call("r", "generate_batch", requests=requests))
    texts: dict[str, str] = {}
    while "result" not in (frame := await socket.receive_json()):
        params = frame["params"]
        assert params["id"] == "r"
        if params["event"] == "token":
            texts[params["item"]] = texts.get(params["item"], "") + params["text"]
    assert texts == {"0": "you said: A", "2": "you said: C"}
    first, second, third = frame["result"]["results"]
    assert (first["id"], first["finish_reason"]) == ("0", "stop")
    assert (second["id"], second["error"]["code"]) == ("b", "queue_full")
    assert (third["id"], third["finish_reason"]) == ("2", "stop")
    statistics = frame["result"]["statistics"]
    assert (statistics["requests"], statistics["failed"]) == (3, 1)
    assert statistics["completion_tokens"] == 4


async def test_batch_in_one_piece(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    runtime.script = echo
    requests = [{"prompt": "A"}, {"prompt": "B"}]
    await socket.send_json(call("r", "generate_batch", requests=requests, stream=False))
    result = (await socket.receive_json())["result"]
    assert [item["text"] for item in result["results"]] == ["you said: A", "you said: B"]
    assert result["statistics"]["completion_tokens"] == 4


async def test_cancel_one_of_two(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("goes", "generate", prompt="x"))
    await socket.send_json(call("stays", "generate", prompt="x"))
    goes, stays = await runtime.opened(2)
    goes.say(Token("a"))
    stays.say(Token("a"))
    assert (await ask(socket, "c", "cancel", id="goes"))["result"] == {"cancelled": 1}
    assert (await until_answer(socket, "goes"))["result"]["finish_reason"] == "cancelled"
    stays.say(done())
    assert (await until_answer(socket, "stays"))["result"]["finish_reason"] == "stop"


async def test_cancel_all_takes_batches_and_what_waits(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("one", "generate", prompt="x"))
    requests = [{"prompt": "A"}, {"prompt": "B"}]
    await socket.send_json(call("many", "generate_batch", requests=requests))
    await socket.send_json(call("c", "cancel", all=True))
    answers = {}
    while len(answers) < 3:
        frame = await socket.receive_json()
        if "id" in frame:
            answers[frame["id"]] = frame
    assert answers["c"]["result"] == {"cancelled": 3}
    assert answers["one"]["error"]["data"]["code"] == "cancelled"
    results = answers["many"]["result"]["results"]
    assert [item["error"]["code"] for item in results] == ["cancelled", "cancelled"]
    assert runtime.num_open == 0


async def test_cancel_one_of_a_batch(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    requests = [{"prompt": "A"}, {"id": "goes", "prompt": "B"}, {"prompt": "C"}]
    await socket.send_json(call("many", "generate_batch", requests=requests))
    streams = await runtime.opened(3)
    assert (await ask(socket, "c", "cancel", id="many", item="other"))["result"]["cancelled"] == 0
    assert (await ask(socket, "d", "cancel", id="many", item="goes"))["result"]["cancelled"] == 1
    for stream in (streams[0], streams[2]):
        stream.say(done())
    results = (await until_answer(socket, "many"))["result"]["results"]
    assert [item["id"] for item in results] == ["0", "goes", "2"]
    assert [item.get("finish_reason") for item in results] == ["stop", None, "stop"]
    assert results[1]["error"]["code"] == "cancelled"


async def test_a_call_that_is_no_batch_has_no_items(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("one", "generate", prompt="x"))
    await runtime.opened()
    assert (await ask(socket, "c", "cancel", id="one", item="0"))["result"] == {"cancelled": 0}


async def test_cancel_of_what_is_not_there(socket: ClientWebSocketResponse) -> None:
    assert (await ask(socket, "c", "cancel", id="nobody"))["result"] == {"cancelled": 0}
    assert (await ask(socket, "c", "cancel", all=True))["result"] == {"cancelled": 0}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"all": False},
        {"all": 1},
        {"id": []},
        {"id": "r", "all": True},
        {"ids": ["r"]},
        {"item": "x"},
        {"id": "r", "item": 1},
    ],
)
async def test_a_bad_cancel(socket: ClientWebSocketResponse, params: dict[str, Any]) -> None:
    assert (await ask(socket, "c", "cancel", **params))["error"]["code"] == -32602


async def test_ping_answers_while_streams_run(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("r", "generate", prompt="x"))
    (stream,) = await runtime.opened()
    stream.say(*[Token("a")] * 1000)
    assert await answers_ping(socket)
    stream.say(done())
    await until_answer(socket, "r")


async def test_notifications(runtime: FakeFleetRuntime, socket: ClientWebSocketResponse) -> None:
    await socket.send_json(call("r", "generate", prompt="x"))
    await socket.send_json({"jsonrpc": "2.0", "method": "ping"})
    await socket.send_json({"jsonrpc": "2.0", "method": "cancel", "params": {"all": True}})
    assert (await socket.receive_json())["error"]["data"]["code"] == "cancelled"
    await socket.send_json({"jsonrpc": "2.0", "method": "generate", "params": {"prompt": "x"}})
    answer = await socket.receive_json()
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert len(runtime.streams) == 1


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{not json", -32700),
        ("", -32700),
        ("[]", -32600),
        ('"x"', -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', -32601),
        ('{"jsonrpc": "2.0", "id": 1, "method": "generate"}', -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
        (b"\xff\x00", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}', -32601),
    ],
)
async def test_a_bad_frame_is_answered_and_the_others_live_on(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse, frame: str | bytes, code: int
) -> None:
    await socket.send_json(call("lives", "generate", prompt="x"))
    (stream,) = await runtime.opened()
    await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))
    assert (await socket.receive_json())["error"]["code"] == code
    stream.say(done())
    assert "result" in await until_answer(socket, "lives")


async def test_a_text_frame_that_is_no_utf8_is_answered(socket: ClientWebSocketResponse) -> None:
    await socket.send_frame(b"\xff\xfe", WSMsgType.TEXT)
    assert (await socket.receive_json())["error"]["code"] == -32700
    assert await answers_ping(socket)


async def test_an_oversized_frame_is_answered(socket: ClientWebSocketResponse) -> None:
    await socket.send_bytes(b"x" * (MAX_BODY_BYTES + 1))
    answer = await socket.receive_json()
    assert answer["error"]["data"]["code"] == "request_too_large"
    assert await answers_ping(socket)


async def test_too_many_live_requests(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    requests = [{"prompt": "x"}] * 256
    for number in range(MAX_LIVE_REQUESTS // 256):
        await socket.send_json(call(number, "generate_batch", requests=requests))
    refused = await ask(socket, "r", "generate", prompt="x")
    assert refused["error"]["data"] == {"code": "rate_limited", "retryable": True}
    await ask(socket, "c", "cancel", id=0)
    await until_answer(socket, 0)
    runtime.script = echo
    assert "result" in await ask(socket, "r", "generate", prompt="x")


async def test_closing_the_socket_closes_what_it_started(
    runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
) -> None:
    await socket.send_json(call("a", "generate", prompt="x"))
    await socket.send_json(call("b", "generate_batch", requests=[{"prompt": "x"}] * 3))
    (first, *_) = await runtime.opened(4)
    first.say(Token("a"))
    await socket.receive_json()
    await socket.close()
    await runtime.until(lambda: runtime.num_open == 0)


async def test_a_slow_reader_holds_its_streams_back(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        await socket.send_json(call("r", "generate", prompt="x"))
        (stream,) = await runtime.opened()
        piece = Token("x" * 100_000)
        stream.say(*[piece] * 300)
        # The frames of nobody who reads fill the sockets' buffers, not more.
        await runtime.until(lambda: stream.num_delivered >= 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert stream.num_delivered < 300
        stream.say(done())
        assert "result" in await until_answer(socket, "r")
    assert stream.num_delivered == 301


FRAMES = (
    st.binary()
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | objects_like(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "generate",
            "params": {"prompt": "x", "requests": [{"prompt": "x"}]},
        }
    ).map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda method, params: json.dumps(call("r", method, **params)).encode(),
        st.sampled_from(["generate", "generate_batch", "cancel", "embed", "ping"]),
        objects_like({"prompt": "x", "requests": [{"prompt": "x"}], "id": "r", "all": True}),
    )
)


@given(st.lists(FRAMES, max_size=8))
async def test_whatever_is_sent_the_socket_lives(frames: list[bytes]) -> None:
    app = inference_app(FakeFleetRuntime(echo))
    async with (
        TestClient(TestServer(app)) as client,
        client.ws_connect("/api/v1/socket") as socket,
    ):
        for frame in frames:
            await socket.send_frame(frame, WSMsgType.TEXT)
        assert await answers_ping(socket)


class TestQuestions:
    async def test_are_answered_in_one_piece(
        self, runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
    ) -> None:
        runtime.answers = lambda _question: (Tokenized(tokens=(1, 2)),)
        answer = await ask(socket, "r1", "tokenize", text="ab")
        assert answer == {
            "jsonrpc": "2.0",
            "id": "r1",
            "result": {"tokens": [1, 2], "num_tokens": 2},
        }

    async def test_that_fail(
        self, runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
    ) -> None:
        runtime.answers = lambda _question: QueueFull("full")
        answer = await ask(socket, "r1", "embed", input="a")
        assert answer["error"]["data"] == {"code": "queue_full", "retryable": True}

    async def test_go_with_their_socket(
        self, runtime: FakeFleetRuntime, socket: ClientWebSocketResponse
    ) -> None:
        call = {"jsonrpc": "2.0", "id": "r1", "method": "embed", "params": {"input": "a"}}
        await socket.send_json(call)
        await runtime.until(lambda: len(runtime.questions) == 1)
        await socket.close()
        await runtime.until(lambda: runtime.withdrawn == ["q-0"])


class Opened:
    """A request that remembers being closed."""

    def __init__(self, id: str | None) -> None:
        self.id = None if id is None else RequestId(id)
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def never() -> None:
    await asyncio.Event().wait()


def live(*ids: str | None, items: tuple[str, ...] = ()) -> LiveCall:
    return LiveCall([Opened(id) for id in ids], asyncio.create_task(never()), items)


async def test_a_call_is_here_until_it_is_removed() -> None:
    calls, call = LiveCalls(), live("r1")
    calls.add("a", call)
    assert ("a" in calls, "b" in calls, calls.tasks) == (True, False, [call.task])
    calls.remove("a")
    assert ("a" in calls, calls.tasks) == (False, [])


async def test_a_cancel_selects_one_call_one_item_or_all() -> None:
    calls = LiveCalls()
    calls.add(1, live("r1"))
    calls.add("many", live("r2", None, "r4", items=("0", "refused", "last")))
    assert calls.named({"id": 1}) == ["r1"]
    assert calls.named({"id": "many"}) == ["r2", "r4"], "one was refused, so it has no request"
    assert calls.named({"id": "many", "item": "last"}) == ["r4"]
    assert calls.named({"id": 1, "item": "0"}) == []
    assert calls.named({"id": "nobody"}) == []
    assert calls.named({"all": True}) == ["r1", "r2", "r4"]


@pytest.mark.parametrize("params", [None, {}, {"all": False}, {"id": []}, {"id": 1, "all": True}])
async def test_a_cancel_of_anything_else_is_refused(params: object) -> None:
    with pytest.raises(InvalidRequest, match="give either"):
        LiveCalls().named(params)


async def test_each_request_of_a_batch_counts() -> None:
    calls = LiveCalls()
    calls.add("many", live("r1", "r2"))
    calls.check_room(MAX_LIVE_REQUESTS - 2)
    with pytest.raises(RateLimited, match=r"1024 requests at once, 2 are running"):
        calls.check_room(MAX_LIVE_REQUESTS - 1)
    calls.remove("many")
    calls.check_room(MAX_LIVE_REQUESTS)


async def test_closing_closes_requests_and_ends_tasks() -> None:
    calls, call = LiveCalls(), live("r1", "r2")
    calls.add("a", call)
    calls.close()
    assert all(isinstance(each, Opened) and each.is_closed for each in call.streams)
    with pytest.raises(asyncio.CancelledError):
        await call.task


class Emitted:
    """What went out, read back."""

    def __init__(self) -> None:
        self.params: list[Any] = []
        self.num_waits = 0

    def write(self, frame: bytes) -> bool:
        self.params.append(json.loads(frame)["params"])
        self.num_waits -= 1
        return False

    async def drained(self) -> None:
        self.num_waits += 1

    def texts(self, item: str | None = None) -> str:
        return "".join(p.get("text", "") for p in self.params if p.get("item") == item)


async def generate(runtime: FakeFleetRuntime, emit: Emitted, **body: Any) -> Any:
    requested = GenerateRequest(prompt="x", **body)
    return json.loads(await answer_generate("r", requested, runtime.open(requested), emit))


async def test_events_go_out_before_the_answer() -> None:
    emitted = Emitted()
    answer = await generate(FakeFleetRuntime(echo), emitted)
    assert emitted.texts() == "you said: x"
    assert emitted.num_waits == 0, "after each frame it waits for room, since there is none"
    assert answer["result"]["finish_reason"] == "stop"
    assert "text" not in answer["result"]


async def test_in_one_piece_nothing_goes_out_before() -> None:
    emitted = Emitted()
    answer = await generate(FakeFleetRuntime(echo), emitted, stream=False)
    assert emitted.params == []
    assert answer["result"]["text"] == "you said: x"


async def test_one_that_waits_is_told_in_notifications() -> None:
    runtime = FakeFleetRuntime(lambda _: [Waiting(2, "model"), Failed(AgentLost("gone"))])
    emitted = Emitted()
    answer = await generate(runtime, emitted)
    assert emitted.params == [
        {"event": "waiting", "id": "r", "position": 2, "for": "model"}
        | {"seconds_left": None, "reason": None}
    ]
    assert answer["error"]["data"]["code"] == "agent_lost"


async def test_a_failure_is_the_answer() -> None:
    runtime = FakeFleetRuntime(lambda _: [Token("a"), Failed(AgentLost("gone"))])
    for stream in (True, False):
        answer = await generate(runtime, Emitted(), stream=stream)
        assert answer["error"]["data"]["code"] == "agent_lost"


async def batch(emitted: Emitted, stream: bool) -> list[Any]:
    runtime = FakeFleetRuntime(echo)
    runtime.refusals = [None, QueueFull("full")]
    requests = tuple(GenerateRequest(prompt=name) for name in "AB")
    streams = open_all(or_refusal(runtime.open), requests)
    requested = RequestBatch(("a", "b"), requests, stream)
    return json.loads(await answer_batch(7, requested, streams, emitted))["result"]["results"]


async def test_a_batchs_events_name_their_item() -> None:
    emitted = Emitted()
    first, second = await batch(emitted, True)
    assert {params["id"] for params in emitted.params} == {7}
    assert emitted.texts("a") == "you said: A"
    assert {p["item"]: p["event"] for p in emitted.params} == {"a": "done", "b": "error"}
    assert (first["id"], first["finish_reason"], "text" in first) == ("a", "stop", False)
    assert second["error"]["code"] == "queue_full"


async def test_a_batch_in_one_piece() -> None:
    emitted = Emitted()
    first, second = await batch(emitted, False)
    assert emitted.params == []
    assert first["text"] == "you said: A"
    assert second == {
        "id": "b",
        "error": {"code": "queue_full", "message": "full", "retryable": True},
    }
