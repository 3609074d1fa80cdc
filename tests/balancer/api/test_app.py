"""All APIs together: who leaves, what is sent, and the real fleet runtime behind them."""

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import openai
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from arriero.balancer.api.app import absent, inference_app
from arriero.balancer.api.openapi.document import Doc
from arriero.balancer.api.route import ROUTES
from arriero.balancer.api.transport.hosts import AllowedHosts
from arriero.shared.errors import NotFound, NotSupported
from arriero.shared.inference import GenerateRequest, RequestId, Token
from arriero.shared.messages import Ask, decode_from_balancer, encode_from_balancer
from arriero.shared.queries import Counted, CountTokens
from tests.balancer import documents
from tests.balancer.api.fake_runtime import FakeFleetRuntime, echo
from tests.balancer.api.json_values import JSON_VALUES, objects_like
from tests.balancer.api.scripted_fleet import scripted_fleet, until
from tests.balancer.openapi_checks import check_whole, routes_in

ANTHROPICS = {"anthropic-version": "2023-06-01"}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_health_and_readiness(runtime: FakeFleetRuntime, client: TestClient) -> None:
    assert (await client.get("/health")).status == 200
    response = await client.get("/ready")
    assert (response.status, await response.json()) == (
        200,
        {"ready": True, "slots": {"total": 4, "busy": 0}},
    )
    runtime.is_draining = True
    assert (await client.get("/ready")).status == 503
    runtime.is_draining = False
    runtime.slots_total = 0
    assert (await client.get("/ready")).status == 503
    assert (await client.get("/health")).status == 200


@pytest.mark.parametrize(
    ("path", "member"),
    [("/nowhere", "retryable"), ("/v1", "param"), ("/v1/nowhere", "param"), ("/v10", "retryable")],
)
async def test_each_api_has_its_shape_of_errors(client: TestClient, path: str, member: str) -> None:
    response = await client.get(path)
    assert response.status == 404
    assert member in (await response.json())["error"]


async def test_pages_of_an_admitted_origin_may_call_models_without_a_key_for_the_question(
    runtime: FakeFleetRuntime,
) -> None:
    hosts = AllowedHosts([], ["app://*"])
    asked = {"Origin": "app://notes", "Access-Control-Request-Method": "POST"}
    app = inference_app(runtime, hosts=hosts)
    async with TestClient(TestServer(app)) as client:
        answer = await client.options("/v1/chat/completions", headers=asked)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == "app://notes"
        refused = await client.get("/v1/models/none", headers={"Origin": "app://notes"})
        assert refused.headers["Access-Control-Allow-Origin"] == "app://notes"


# ---- the document


def test_all_of_the_native_api_is_described(runtime: FakeFleetRuntime) -> None:
    declared = inference_app(runtime)[ROUTES]
    own = {(each.method, each.path) for each in declared if isinstance(each.doc, Doc)}
    assert routes_in(documents.inference()) == own
    native = {each.path for each in declared if each.path.startswith("/api/v1/")}
    assert native < {path for _, path in own}


def test_the_document_is_whole() -> None:
    check_whole(documents.inference(), "Arriero, inference")


# ---- clients that go away

REQUESTS: list[tuple[str, Any, int]] = [
    ("/api/v1/generate", {"prompt": "x"}, 1),
    ("/api/v1/generate", {"prompt": "x", "stream": False}, 1),
    ("/api/v1/generate_batch", {"requests": [{"prompt": "x"}] * 3}, 3),
    ("/api/v1/generate_batch", {"requests": [{"prompt": "x"}] * 3, "stream": False}, 3),
    ("/v1/chat/completions", CHAT | {"stream": True, "n": 2}, 2),
    ("/v1/chat/completions", CHAT, 1),
    ("/v1/completions", {"prompt": ["x", "y"], "stream": True}, 2),
]


def close(sock: socket.socket) -> None:
    sock.close()


def half_close(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def connect(client: TestClient, path: str, body: Any) -> socket.socket:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {client.host}:{client.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    sock = socket.create_connection((client.host, client.port))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(sock, head.encode() + data)
    return sock


@pytest.mark.parametrize("leave", [close, half_close, reset])
@pytest.mark.parametrize(("path", "body", "num_streams"), REQUESTS)
@pytest.mark.parametrize("has_streamed", [False, True])
async def test_a_client_that_leaves_closes_what_it_asked_for(
    runtime: FakeFleetRuntime,
    client: TestClient,
    leave: Callable[[socket.socket], None],
    path: str,
    body: Any,
    num_streams: int,
    has_streamed: bool,
) -> None:
    sock = await connect(client, path, body)
    with sock:
        first, *_ = await runtime.opened(num_streams)
        if has_streamed:
            first.say(Token("a"))
            await runtime.until(lambda: first.num_delivered == 1)
        leave(sock)
        await runtime.until(lambda: runtime.num_open == 0)
    assert all(stream.is_closed_early for stream in runtime.streams)


async def test_a_client_that_leaves_while_it_does_not_read(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    sock = await connect(client, "/api/v1/generate", {"prompt": "x"})
    (stream,) = await runtime.opened()
    stream.say(*[Token("x" * 100_000)] * 300)
    await runtime.until(lambda: stream.num_delivered > 3)
    assert stream.num_delivered < 300
    reset(sock)
    await runtime.until(lambda: runtime.num_open == 0)


CLOSE_FRAME = bytes([0x88, 0x80]) + bytes(4)


def text_frame(value: Any) -> bytes:
    """A masked text frame; the mask is all zeros."""
    data = json.dumps(value).encode()
    return bytes([0x81, 0x80 | len(data)]) + bytes(4) + data


async def upgrade(client: TestClient) -> socket.socket:
    sock = socket.create_connection((client.host, client.port))
    sock.setblocking(False)
    head = (
        f"GET /api/v1/socket HTTP/1.1\r\nHost: {client.host}:{client.port}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, head.encode())
    assert (await loop.sock_recv(sock, 65536)).startswith(b"HTTP/1.1 101 ")
    return sock


GENERATE = {"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"prompt": "x"}}


@pytest.mark.parametrize("leave", [close, half_close, reset])
async def test_a_websocket_that_is_cut_closes_what_it_started(
    runtime: FakeFleetRuntime, client: TestClient, leave: Callable[[socket.socket], None]
) -> None:
    with await upgrade(client) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, text_frame(GENERATE))
        await runtime.opened()
        leave(sock)
        await runtime.until(lambda: runtime.num_open == 0)


async def test_a_websocket_that_is_closed_in_one_breath_with_a_call(
    runtime: FakeFleetRuntime, client: TestClient
) -> None:
    with await upgrade(client) as sock:
        frames = text_frame(GENERATE) + CLOSE_FRAME
        await asyncio.get_running_loop().sock_sendall(sock, frames)
        await runtime.opened()
        await runtime.until(lambda: runtime.num_open == 0)


# ---- whatever is sent

PATHS = [
    "/api/v1/generate",
    "/api/v1/generate_batch",
    "/api/v1/embed",
    "/v1/completions",
    "/v1/chat/completions",
]
BODIES = (
    st.binary()
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | objects_like(
        CHAT | {"prompt": "x", "requests": [{"prompt": "x"}], "stream": False, "stop": "x", "n": 2}
    ).map(lambda value: json.dumps(value).encode())
)


@given(st.lists(st.tuples(st.sampled_from(PATHS), BODIES), min_size=1, max_size=6))
async def test_whatever_is_sent_is_answered_in_shape(sent: list[tuple[str, bytes]]) -> None:
    async with TestClient(TestServer(inference_app(FakeFleetRuntime(echo)))) as client:
        for path, body in sent:
            response = await client.post(
                path, data=body, headers={"Content-Type": "application/json"}
            )
            if response.status != 200:
                assert response.status in (400, 501)
                error = (await response.json())["error"]
                assert error["message"]
                assert ("param" if path.startswith("/v1") else "retryable") in error
            await response.read()


# ---- the real fleet runtime


async def test_native_streams_over_the_real_runtime() -> None:
    async with scripted_fleet() as (client, _):
        prompts = [f"the words of number {number}" for number in range(12)]

        async def ask(prompt: str) -> str:
            response = await client.post("/api/v1/generate", json={"prompt": prompt})
            events = [json.loads(line) async for line in response.content]
            assert events[-1]["event"] == "done"
            return "".join(event["text"] for event in events[:-1]).strip()

        assert await asyncio.gather(*map(ask, prompts)) == prompts


async def test_a_batch_larger_than_the_fleet_queues() -> None:
    async with scripted_fleet(slots=1) as (client, _):
        body = {"requests": [{"prompt": f"number {n}"} for n in range(20)], "stream": False}
        response = await client.post("/api/v1/generate_batch", json=body)
        results = (await response.json())["results"]
    assert [item["text"] for item in results] == [f"number {n} " for n in range(20)]


async def test_a_batch_larger_than_the_queue_has_errors_for_the_rest() -> None:
    async with scripted_fleet(slots=1, max_buffered=3) as (client, _):
        body = {"requests": [{"prompt": "x"}] * 8, "stream": False}
        response = await client.post("/api/v1/generate_batch", json=body)
        results = (await response.json())["results"]
    codes = [item["error"]["code"] if "error" in item else "answered" for item in results]
    assert codes == ["answered"] * 5 + ["queue_full"] * 3


@pytest.mark.parametrize(("path", "body", "num_streams"), REQUESTS)
async def test_slots_are_free_at_once_when_a_client_leaves(
    path: str, body: Any, num_streams: int
) -> None:
    endless = json.loads(json.dumps(body).replace('"x"', '"endless"').replace('"Hi"', '"endless"'))
    async with scripted_fleet() as (client, runtime):
        sock = await connect(client, path, endless)
        await until(runtime, lambda view: view.slots_busy >= 1)
        half_close(sock)
        await until(runtime, lambda view: not view.requests and view.slots_busy == 0)
        sock.close()


async def test_cancel_on_a_socket_over_the_real_runtime() -> None:
    async with scripted_fleet(slots=1) as (client, runtime):
        async with client.ws_connect("/api/v1/socket") as ws:
            for number in range(5):
                params = {"prompt": "endless", "stream": False}
                await ws.send_json(
                    {"jsonrpc": "2.0", "id": number, "method": "generate", "params": params}
                )
            await until(runtime, lambda view: len(view.requests) == 5)
            await until(
                runtime, lambda view: sum(r.state == "streaming" for r in view.requests) == 2
            )
            await ws.send_json(
                {"jsonrpc": "2.0", "id": "c", "method": "cancel", "params": {"all": True}}
            )
            answers = {}
            while len(answers) < 6:
                frame = await ws.receive_json()
                answers[frame["id"]] = frame
        assert answers["c"]["result"] == {"cancelled": 5}
        reasons = [
            answers[n]["result"]["finish_reason"] if "result" in answers[n] else "never ran"
            for n in range(5)
        ]
        assert reasons == ["cancelled"] * 2 + ["never ran"] * 3
        await until(runtime, lambda view: view.slots_busy == 0)


async def test_a_slow_reader_gets_everything_and_slows_nobody() -> None:
    async with scripted_fleet() as (client, runtime):
        sock = await connect(client, "/api/v1/generate", {"prompt": "endless"})
        await until(runtime, lambda view: view.tokens_total > 1000)
        response = await client.post("/api/v1/generate", json={"prompt": "a b", "stream": False})
        assert (await response.json())["text"] == "a b "
        reset(sock)
        await until(runtime, lambda view: not view.requests)


async def test_the_official_client_over_the_real_runtime() -> None:
    async with scripted_fleet(slots=1) as (client, runtime):
        url = str(client.make_url("/v1"))
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as official:
            assert (await official.models.retrieve("demo")).id == "demo"
            answer = await official.chat.completions.create(model="demo", n=4, **CHAT)
            assert [choice.message.content for choice in answer.choices] == ["Hi "] * 4
            stream = await official.completions.create(
                model="demo", prompt=["a b c", "d e"], stream=True
            )
            texts = ["", ""]
            async for chunk in stream:
                for choice in chunk.choices:
                    texts[choice.index] += choice.text
            assert texts == ["a b c ", "d e "]
            with pytest.raises(openai.NotFoundError):
                await official.chat.completions.create(model="other", **CHAT)

            endless = await official.completions.create(
                model="demo", prompt="endless", n=2, stream=True
            )
            await anext(aiter(endless))
            await endless.close()
            await until(runtime, lambda view: not view.requests and view.slots_busy == 0)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def tool(depth: int) -> dict[str, Any]:
    return {"name": "f", "parameters": nested(depth)}


NESTING: dict[str, Callable[[int], Any]] = {
    "/api/v1/generate": lambda depth: {"prompt": "x", "tools": [{"function": tool(depth)}]},
    "/api/v1/count_tokens": lambda depth: {"prompt": "x", "tools": [{"function": tool(depth)}]},
    "/api/v1/generate_batch": lambda depth: {
        "requests": [{"prompt": "x", "tools": [{"function": tool(depth)}]}]
    },
    "/v1/chat/completions": lambda depth: CHAT | {"tools": [{"function": tool(depth)}]},
    "/v1/responses": lambda depth: {"input": "x", "tools": [{"type": "function"} | tool(depth)]},
    "/v1/responses/input_tokens": lambda depth: {
        "input": "x",
        "tools": [{"type": "function"} | tool(depth)],
    },
    "/v1/messages": lambda depth: (
        CHAT | {"max_tokens": 1, "tools": [{"name": "f", "input_schema": nested(depth)}]}
    ),
    "/v1/messages/count_tokens": lambda depth: (
        CHAT | {"tools": [{"name": "f", "input_schema": nested(depth)}]}
    ),
}


@pytest.mark.parametrize("path", NESTING)
async def test_whatever_is_accepted_can_be_read_by_agents(
    runtime: FakeFleetRuntime, client: TestClient, path: str
) -> None:
    """At the edge, where a frame nests a request deeper than its body did."""
    runtime.script = echo
    runtime.answers = lambda _: [Counted(num_tokens=1)]
    refusals = set()
    for depth in range(185, 201):
        response = await client.post(path, json=NESTING[path](depth))
        if response.status != 200:
            refusals.add((await response.json())["error"]["message"].partition(":")[0])
    accepted = [stream.request for stream in runtime.streams]
    accepted += [call.parts[0].request for call in runtime.questions]
    assert len(accepted) >= 2
    for each in accepted:
        can_be_read = _can_be_read(each)
        assert can_be_read  # not the call itself: its arguments nest too deep to be shown
    # A batch nests its requests deeper than a frame does, so its own limit comes first.
    assert "no agent could read the request" in refusals or path.endswith("_batch")


def _can_be_read(request: GenerateRequest) -> bool:
    frame = encode_from_balancer(Ask(id=RequestId("0" * 40), query=CountTokens(request=request)))
    try:
        decode_from_balancer(frame)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/audio/speech", "/v1/images/generations"])
async def test_what_openai_has_besides_is_not_found_with_a_reason(
    client: TestClient, path: str
) -> None:
    for method in ("GET", "POST"):
        async with client.request(method, path) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (404, "not_found")
            assert path in error["message"]
            assert "with text" in error["message"]


async def test_ollamas_clients_do_not_change_the_models(client: TestClient) -> None:
    calls = [("POST", "pull"), ("POST", "push"), ("POST", "create"), ("DELETE", "delete")]
    for method, name in calls:
        async with client.request(method, f"/api/{name}", json={"model": "m"}) as response:
            assert response.status == 501
            assert "desired state" in (await response.json())["error"]


# ---- what is not here


@pytest.mark.parametrize(
    ("method", "path", "headers", "words"),
    [
        ("POST", "/v1/responses/compact", {}, "/v1/responses/compact is not supported"),
        ("POST", "/v1/messages/batches", ANTHROPICS, "batches of messages are not supported"),
        ("GET", "/v1/files", ANTHROPICS, "send documents and pictures in the message"),
        ("POST", "/v1/files", ANTHROPICS, "send documents and pictures in the message"),
    ],
)
async def test_what_is_not_here_says_what_is(
    client: TestClient, method: str, path: str, headers: dict[str, str], words: str
) -> None:
    async with client.request(method, path, headers=headers, json={}) as response:
        body = await response.json()
        assert response.status == 404
        assert words in body["error"]["message"]
        assert ("type" in body) == bool(headers), "in Anthropic's shape for Anthropic's clients"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/realtime", "voice sessions"),
        ("/v1/realtime/sessions", "voice sessions"),
        ("/v1/audio/speech", "speech and transcription"),
        ("/v1/images/generations", "images"),
        ("/api/v1/events", "path of the management port"),
        ("/v1/imagesque", "there is nothing at /v1/imagesque"),
        ("/v1/messages/batches", "/v1/batches takes"),
        ("/v1/messages/batches/b1/results", "/v1/batches takes"),
        ("/v1/vector_stores/vs_1/files", "vectors of /v1/embeddings"),
        ("/v1/assistants", "/v1/responses and /v1/conversations"),
        ("/v1/threads/t1/runs", "/v1/responses and /v1/conversations"),
        ("/v1/uploads", "the whole file to /v1/files"),
        ("/v1/moderations", "moderation is not supported"),
        ("/v1/fine_tuning/jobs", "fine-tuning is not supported"),
        ("/x/{path}", "there is nothing at /x/{path}"),
    ],
)
def test_what_is_not_found(path: str, words: str) -> None:
    error = absent(path)
    assert isinstance(error, NotFound)
    assert words in error.message
    assert path in error.message


@pytest.mark.parametrize("call", ["pull", "push", "create", "copy", "delete", "blobs/sha256:0"])
def test_models_come_with_the_desired_state(call: str) -> None:
    error = absent(f"/api/{call}")
    assert isinstance(error, NotSupported)
    assert "desired state" in error.message


def test_long_paths_are_cut() -> None:
    assert len(absent("/" + "x" * 5000).message) < 300
