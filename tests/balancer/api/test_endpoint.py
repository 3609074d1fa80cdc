"""The frame of all endpoints: streams and whole answers, and errors at every stage of both."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from multidict import CIMultiDict

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.common.body_fields import FieldNames
from arriero.balancer.api.common.rendering import Rendering
from arriero.balancer.api.endpoint import (
    EARLY_HEADERS_KEY,
    IGNORED_HEADER,
    Endpoint,
    Generation,
    KnownAnswer,
    Opened,
    Query,
    collected,
    handler,
    waits_of,
)
from arriero.balancer.api.transport.bodies import BODIES, Bodies
from arriero.balancer.api.transport.fault_reports import FAULT_REPORTS, FaultReports
from arriero.balancer.api.transport.http import middleware, request_id_key
from arriero.balancer.api.transport.streaming import EVENT_STREAM, NDJSON
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.runtime.stream import PACKED_LOG_PROB
from arriero.shared.errors import (
    AgentLost,
    InvalidRequest,
    NotFound,
    PromptTooLong,
    QueueFull,
    RequestError,
)
from arriero.shared.inference import Event, Failed, GenerateRequest, Token, Waiting
from arriero.shared.queries import Tokenize, Tokenized
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done
from tests.waiting import HANGS

ANN = Caller(name="ann", owner="ann")
NAMES = FieldNames({"prompt": "question"})
TOO_LONG = PromptTooLong("`prompt`: too long", field="prompt")


class Words(Rendering):
    """Writes the words of each request after its number."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self.taken: list[tuple[int, Event]] = []

    def render(self, event: Event, number: int = 0, /) -> bytes:
        match event:
            case Token():
                return f"{number}={event.text};".encode()
            case Waiting():
                return b"wait;"
            case Failed():
                return f"error={event.error.message};".encode()
            case _:
                return b""

    def tail(self) -> bytes:
        return b"end"

    def take(self, event: Event, number: int = 0, /) -> None:
        self.taken.append((number, event))

    def whole(self) -> object:
        words = [(number, event.text) for number, event in self.taken if isinstance(event, Token)]
        return {"id": self.opened.id, "model": self.opened.model, "words": sorted(words)}


def asking(num: int = 1, *, is_streamed: bool = True, **more: Any) -> Generation:
    requests = [GenerateRequest(prompt=str(number)) for number in range(num)]
    return Generation(
        requests=requests, is_streamed=is_streamed, rendering=Words, names=NAMES, **more
    )


@asynccontextmanager
async def asked(
    runtime: FakeFleetRuntime, answer: object, *, id: str | None = None
) -> AsyncIterator[TestClient]:
    async def answered(_requested: bytes, _caller: Caller) -> Any:
        if isinstance(answer, RequestError):
            raise answer
        return answer

    handle = handler(runtime, Endpoint(lambda body, _notes: body, answered))  # type: ignore[arg-type]

    async def handle_with_id(request: web.Request) -> web.StreamResponse:
        if id is not None:
            request[request_id_key] = id
        return await handle(request)

    app = web.Application(middlewares=[middleware()])
    app[BODIES], app[FAULT_REPORTS] = Bodies(), FaultReports()
    app.add_routes([web.post("/", handle_with_id)])
    async with TestClient(TestServer(app, handler_cancellation=True)) as client:
        yield client


async def text(runtime: FakeFleetRuntime, answer: object, **headers: str) -> tuple[int, str]:
    async with (
        asked(runtime, answer) as client,
        client.post("/", json={}, headers=headers) as response,
    ):
        return response.status, await response.text()


def says(*events: Event) -> Callable[[GenerateRequest], Sequence[Event]]:
    return lambda _request: events


async def test_a_stream() -> None:
    runtime = FakeFleetRuntime(says(Token("a"), Token("b"), done()))
    async with (
        asked(runtime, asking(id_headers=("request-id",))) as client,
        client.post("/", json={}) as response,
    ):
        assert await response.text() == "0=a;0=b;end"
        assert response.headers["Content-Type"] == EVENT_STREAM
        assert response.headers["X-Request-Id"] == response.headers["request-id"] == "req-0"


async def test_a_whole_answer() -> None:
    runtime = FakeFleetRuntime(says(Token("a"), done()))
    status, body = await text(runtime, asking(is_streamed=False))
    assert (status, body) == (200, '{"id":"req-0","model":"demo","words":[[0,"a"]]}')
    assert runtime.kept_log_probs == [PACKED_LOG_PROB]


async def test_an_id_that_was_drawn_before_is_the_requests() -> None:
    runtime = FakeFleetRuntime(says(Token("a"), done()))
    async with asked(runtime, asking(), id="mine") as client:
        response = await client.post("/", json={})
        assert response.headers["X-Request-Id"] == runtime.streams[0].id == "mine"


async def test_several_requests_are_one_answer() -> None:
    runtime = FakeFleetRuntime(lambda request: [Token(f"x{request.prompt}"), done()])
    _, body = await text(runtime, asking(2))
    assert sorted(body.removesuffix("end").split(";")) == ["", "0=x0", "1=x1"]
    assert body.endswith(";end")
    _, whole = await text(runtime, asking(2, is_streamed=False))
    assert '"words":[[0,"x0"],[1,"x1"]]' in whole


async def test_requests_that_wait_together_say_so_once() -> None:
    runtime = FakeFleetRuntime()
    async with asked(runtime, asking(2)) as client:
        posting = asyncio.create_task(client.post("/", json={}))
        for stream in await runtime.opened(2):
            stream.say(Waiting(1, "slot"))
        response = await posting
        for stream in runtime.streams:
            stream.say(Token("a"), done())
        body = await response.text()
    assert body.startswith("wait;")
    assert sorted(body.removesuffix("end").split(";")) == ["", "0=a", "1=a", "wait"]


@pytest.mark.parametrize("num", [1, 2])
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_error_before_all_bytes_is_a_status(num: int, is_streamed: bool) -> None:
    answer = asking(num, is_streamed=is_streamed)
    status, body = await text(FakeFleetRuntime(says(Failed(TOO_LONG))), answer)
    assert status == 400
    assert "`question`: too long" in body
    runtime = FakeFleetRuntime()
    runtime.refusals = [None] * (num - 1) + [QueueFull("full")]
    assert (await text(runtime, answer))[0] == 503
    assert runtime.num_open == 0


@pytest.mark.parametrize("num", [1, 2])
async def test_a_later_error_ends_the_stream(num: int) -> None:
    runtime = FakeFleetRuntime()
    async with asked(runtime, asking(num)) as client:
        posted = client.post("/", json={})
        runtime.script = says(Token("a"))
        async with posted as response:
            assert await response.content.readuntil(b";") == b"0=a;"
            runtime.streams[0].say(Failed(TOO_LONG))
            rest = await response.text()
    assert rest.endswith("error=`question`: too long;")
    assert runtime.num_open == 0


async def test_a_later_error_of_a_whole_answer_is_its_status() -> None:
    runtime = FakeFleetRuntime(says(Token("a"), Failed(AgentLost("gone"))))
    assert (await text(runtime, asking(is_streamed=False)))[0] == 502


async def test_what_an_api_refuses_is_its_status() -> None:
    assert (await text(FakeFleetRuntime(), NotFound("no such thread")))[0] == 404


async def test_the_stream_that_a_client_prefers() -> None:
    runtime = FakeFleetRuntime(says(Token("a"), done()))
    answer = asking(content_types=(NDJSON, EVENT_STREAM))
    async with asked(runtime, answer) as client:
        for accept, told in ((EVENT_STREAM, EVENT_STREAM), ("*/*", NDJSON), ("", NDJSON)):
            response = await client.post("/", json={}, headers={"Accept": accept})
            assert response.headers["Content-Type"] == told


TEXT = QueryRequest(kind="text", parts=(Tokenize(text="x", add_special=False),))


async def test_a_query() -> None:
    runtime = FakeFleetRuntime()
    runtime.answers = lambda _: (Tokenized(tokens=(1,)),)
    query = Query(TEXT, lambda id, results: {"id": id, "num": iter([len(results)])})
    async with asked(runtime, query) as client, client.post("/", json={}) as response:
        body = await response.json()
        assert body == {"id": response.headers["X-Request-Id"], "num": [1]}
    id, whole = await collected(runtime, ANN, query)  # type: ignore[arg-type]
    assert whole == b'{"id":"%b","num":[1]}' % id.encode()


async def test_what_is_known_already() -> None:
    async with asked(FakeFleetRuntime(), KnownAnswer({"a": 1}, {"X-More": "b"})) as client:
        response = await client.post("/", json={})
        assert (await response.json(), response.headers["X-More"]) == ({"a": 1}, "b")


async def test_within_the_process() -> None:
    runtime = FakeFleetRuntime(says(Token("a"), done()))
    id, body = await collected(runtime, ANN, asking())  # type: ignore[arg-type]
    assert (id, body) == ("req-0", b'{"id":"req-0","model":"demo","words":[[0,"a"]]}')
    assert runtime.callers == [ANN]
    runtime.script = says(Failed(InvalidRequest("`prompt` is odd", field="prompt")))
    with pytest.raises(InvalidRequest, match="`question` is odd"):
        await collected(runtime, ANN, asking())  # type: ignore[arg-type]
    assert runtime.num_open == 0


# ---- ignored fields, through the app: the header tells them, whatever the answer is


MESSAGES = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
CODEX = {
    "model": "demo",
    "input": "hi",
    "client_metadata": {"a": "b"},
    "text": {"colour": "low"},
}
CLAUDE = {
    "model": "demo",
    "max_tokens": 5,
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
        }
    ],
    "speed": "fast",
}


class Counts:
    def __init__(self) -> None:
        self.ignored: list[tuple[str, str]] = []

    def field_ignored(self, route: str, field: str) -> None:
        self.ignored.append((route, field))

    def refused(self, route: str, code: str) -> None: ...


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def client(counts: Counts) -> AsyncIterator[TestClient]:
    runtime = FakeFleetRuntime(script=lambda _request: [done()])
    app = inference_app(runtime, reports=FaultReports(counts))
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (CHAT, {"messages": MESSAGES, "safety_identifier": "low", "x": 1}, "safety_identifier, x"),
        ("/v1/completions", {"prompt": "a", "user": "me"}, "user"),
        ("/v1/responses", CODEX, "client_metadata, text.colour"),
        (
            "/v1/messages",
            CLAUDE,
            "messages[].content[].cache_control, speed",
        ),
    ],
)
async def test_ignored_fields_are_told(
    client: TestClient, path: str, body: dict[str, Any], ignored: str, stream: bool
) -> None:
    answer = await client.post(path, json={**body, "stream": stream})
    assert (answer.status, answer.headers.get(IGNORED_HEADER)) == (200, ignored)
    await asyncio.wait_for(answer.read(), HANGS)


async def test_nothing_is_told_where_nothing_was_ignored(client: TestClient) -> None:
    answer = await client.post(CHAT, json={"messages": MESSAGES, "store": False})
    assert (answer.status, IGNORED_HEADER in answer.headers) == (200, False)


async def test_errors_tell_it_too(client: TestClient, counts: Counts) -> None:
    answer = await client.post(CHAT, json={"messages": MESSAGES, "user": "a", "y": 1, "n": 0})
    assert (answer.status, answer.headers[IGNORED_HEADER]) == (400, "user, y")
    assert counts.ignored == [(CHAT, "user"), (CHAT, "other")]


async def test_a_refusal_of_the_fleet_tells_it_too() -> None:
    runtime = FakeFleetRuntime()
    runtime.refusals = [QueueFull("full")]
    async with TestClient(TestServer(inference_app(runtime))) as client:
        answer = await client.post("/v1/messages", json=CLAUDE)
    assert (answer.status, "speed" in answer.headers[IGNORED_HEADER]) == (529, True)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (CHAT, {"messages": MESSAGES, "user": "low"}, "user"),
        ("/v1/messages", CLAUDE, "messages[0].content[0].cache_control"),
        ("/v1/embeddings", {"input": "a", "colour": "red"}, "colour"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "colour": "red"}, "colour"),
        ("/v1/responses", CODEX, "client_metadata"),
    ],
)
async def test_a_strict_balancer_refuses(path: str, body: dict[str, Any], field: str) -> None:
    runtime = FakeFleetRuntime(script=lambda _request: [done()])
    app = inference_app(runtime, reports=FaultReports(is_strict=True))
    async with TestClient(TestServer(app)) as client:
        answer = await client.post(path, json=body)
        error = (await answer.json())["error"]
    assert (answer.status, f"`{field}`" in error["message"]) == (400, True)


async def test_the_native_api_refuses_what_it_does_not_know(client: TestClient) -> None:
    answer = await client.post("/api/v1/generate", json={"prompt": "a", "colour": "red"})
    assert (answer.status, (await answer.json())["error"]["field"]) == (400, "colour")


@pytest.mark.parametrize(
    ("preferences", "after"),
    [
        ([], 20.0),
        (["wait=3"], 3.0),
        (['respond-async, Wait = "7"; foo=1'], 7.0),
        (["wait=9", "return=minimal"], 9.0),
        (["wait=0"], 0.0),
        (["wait=60"], 20.0),
        (["wait=9" * 100], 20.0),
        (["wait=soon", "wait=-1, wait=\u0663", "wait"], 20.0),
    ],
)
def test_a_client_may_prefer_an_earlier_beginning(preferences: list[str], after: float) -> None:
    app = web.Application()
    app[EARLY_HEADERS_KEY] = 20.0
    headers = CIMultiDict(("Prefer", each) for each in preferences)
    request = make_mocked_request("POST", "/", headers, app=app)
    assert (waits_of(request, True), waits_of(request, False)) == (after, None)
