"""The agents' socket over a loopback connection, with a hand-made agent at the other end."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from socket import SHUT_RDWR
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer
from pydantic import ValidationError

from arriero.agent.link.codec import AgentCodec, outputs
from arriero.balancer.access.access import Access
from arriero.balancer.api.guard import Leases
from arriero.balancer.api.transport.http import middleware
from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.requests.request import MAX_AGENTS_LOST, MAX_LOST_ALONE
from arriero.balancer.fleet.runtime.agent_socket import (
    MAX_MESSAGE_BYTES,
    PATH,
    AgentSocket,
    CostlyMessage,
    Report,
    decoded,
)
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.view import FleetView
from arriero.shared.errors import Unauthorized
from arriero.shared.framing.frames import MAX_MESSAGE_BYTES as MAX_REPLY_BYTES
from arriero.shared.framing.frames import PIECE_BYTES
from arriero.shared.inference import MAX_TOKEN_IDS, Done, Failed, RequestId, Token
from arriero.shared.inference.events import MAX_TOP_LOGPROBS, LogProb, TokenLogProbs
from arriero.shared.messages import (
    BALANCER_HEADER,
    MAX_ITEMS,
    PROTOCOL_VERSION,
    Busy,
    Called,
    Evicted,
    FromAgent,
    FromBalancer,
    Goodbye,
    Heartbeat,
    LogRead,
    Output,
    Piece,
    Reject,
    Reply,
    Start,
    Welcome,
    decode_from_balancer,
    encode_from_agent,
)
from arriero.shared.queries import MAX_INPUTS, Embedded, Ranked, Score, Tokenized, Vector
from arriero.shared.reports.log_lines import MAX_LINE, MAX_LINES, LogLine
from tests.balancer.fleet.builders import ended, hello, output, piece, request
from tests.balancer.fleet.recording import RecordingRecorder
from tests.waiting import HANGS, given_time, until

Client = TestClient[web.Request, web.Application]


def note(refused: list[Unauthorized], _request: web.Request, error: Unauthorized) -> None:
    refused.append(error)


def socket_of(
    runtime: FleetRuntime, report: Report | None = None, *, needs_certificate: bool = False
) -> AgentSocket:
    """Sockets for agents without keys."""
    return AgentSocket(
        runtime,
        admission=Leases(Access()),
        report=partial(note, []) if report is None else report,
        needs_certificate=needs_certificate,
    )


@pytest.fixture
def runtime() -> FleetRuntime:
    return FleetRuntime(
        Fleet(Limits(heartbeat_timeout=HANGS)),
        clock=lambda: 0.0,
        recorder=RecordingRecorder(),
        draw_seed=lambda: 7,
        watch_interval=0.0,
    )


@pytest.fixture
async def client(runtime: FleetRuntime) -> AsyncIterator[Client]:
    app = web.Application(middlewares=[middleware()])
    app.router.add_get(PATH, socket_of(runtime).handle)
    async with TestClient(TestServer(app)) as client:
        yield client


async def say(socket: ClientWebSocketResponse, message: FromAgent) -> None:
    await socket.send_str(encode_from_agent(message).decode())


async def hear(socket: ClientWebSocketResponse) -> FromBalancer:
    return decode_from_balancer(await socket.receive_str())


async def join(client: Client, id: str = "a1") -> ClientWebSocketResponse:
    socket = await client.ws_connect(PATH)
    await say(socket, hello(id))
    assert isinstance(await hear(socket), Welcome)
    return socket


async def fleet_with(runtime: FleetRuntime, num_agents: int) -> FleetView:
    async for _ in runtime.changes():
        if (view := runtime.views.view()).num_agents == num_agents:
            return view
    raise AssertionError("the watch ended")


async def test_a_request_runs_on_an_agent_that_dialled(
    client: Client, runtime: FleetRuntime
) -> None:
    socket = await join(client)
    with runtime.open(request(), caller=ANONYMOUS) as stream:
        assert await hear(socket) == Start(id=stream.id, request=replace(request(), seed=7))
        await say(socket, output(piece(stream.id, "Once")))
        assert await anext(stream) == Token("Once", "content", (0,))
        await say(socket, output(ended(stream.id)))
        assert isinstance(await anext(stream), Done)
    await socket.close()


async def test_agents_of_one_name_are_logged(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def dial(id: str, name: str) -> None:
        socket = await client.ws_connect(PATH)
        await say(socket, replace(hello(id), name=name))
        assert isinstance(await hear(socket), Welcome)

    await dial("a1", "box")
    await dial("a2", "rack")
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    await dial("a3", "box")
    [warning] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning == "2 agents are called 'box': give each a --name of its own"


async def test_what_is_no_agent_is_told_so(client: Client) -> None:
    response = await client.get(PATH)
    assert response.status == 400
    assert "WebSockets of agents" in (await response.json())["error"]["message"]


async def test_an_agent_that_closes_is_gone_at_once(client: Client, runtime: FleetRuntime) -> None:
    socket = await join(client)
    await fleet_with(runtime, 1)
    await socket.close()
    await fleet_with(runtime, 0)


async def test_an_agent_whose_connection_breaks_is_gone_at_once(
    client: Client, runtime: FleetRuntime
) -> None:
    socket = await join(client)
    socket.get_extra_info("socket").shutdown(SHUT_RDWR)
    await fleet_with(runtime, 0)
    await socket.close()


async def test_requests_are_no_suspects_when_agents_hang_up(
    client: Client, runtime: FleetRuntime
) -> None:
    with runtime.open(request(), caller=ANONYMOUS) as stream:
        for number in range(2 * MAX_AGENTS_LOST):
            socket = await join(client, f"a{number}")
            assert isinstance(await hear(socket), Start)
            await socket.close()
        socket = await join(client)
        assert isinstance(await hear(socket), Start)
        await say(socket, output(ended(stream.id)))
        assert isinstance(await anext(stream), Done)


@pytest.mark.parametrize("way", ["breaks", "hung up with an error"])
async def test_requests_are_suspects_when_agents_break_off(
    client: Client, runtime: FleetRuntime, way: str
) -> None:
    with runtime.open(request(), caller=ANONYMOUS) as stream:
        for number in range(MAX_LOST_ALONE):
            socket = await join(client, f"a{number}")
            assert isinstance(await hear(socket), Start)
            if way == "breaks":
                socket.get_extra_info("socket").shutdown(SHUT_RDWR)
            await socket.close(code=WSCloseCode.INTERNAL_ERROR)
        failed = await anext(stream)
        assert isinstance(failed, Failed)
        assert "likely cause" in failed.error.message


async def test_another_protocol_is_rejected_with_a_reason(client: Client) -> None:
    socket = await client.ws_connect(PATH)
    await say(socket, hello(protocol=PROTOCOL_VERSION + 1))
    rejection = await hear(socket)
    assert isinstance(rejection, Reject)
    assert not rejection.retry
    closing = await socket.receive()
    assert (closing.type, closing.extra) == (WSMsgType.CLOSE, rejection.reason)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("{", "not valid JSON"),
        ("{}", "type"),
        ('{"type": "nonsense"}', "type"),
        ('{"type": "output", "items": [{"type": "piece", "id": 3, "text": ""}]}', "id"),
        ("[" * 10_000, "not a valid message"),
        ("[" * 100_000, "costly to decode"),
        (b"\0\0", "header"),
        (b"\0\0\0\1\1{", "not valid JSON"),
    ],
)
async def test_junk_closes_its_own_connection_and_no_other(
    client: Client, runtime: FleetRuntime, frame: str | bytes, reason: str
) -> None:
    bystander = await join(client, "a2")
    stream = runtime.open(request(), caller=ANONYMOUS)
    await hear(bystander)
    socket = await join(client)
    await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))
    closing = await socket.receive()
    assert (closing.type, closing.data) == (WSMsgType.CLOSE, WSCloseCode.POLICY_VIOLATION)
    assert closing.extra is not None
    assert reason in closing.extra
    await fleet_with(runtime, 1)
    await say(bystander, output(ended(stream.id)))
    assert isinstance(await anext(stream), Done)
    await bystander.close()


async def test_a_large_message_comes_in_pieces(client: Client, runtime: FleetRuntime) -> None:
    socket = await join(client)
    with runtime.open(request(), caller=ANONYMOUS) as stream:
        await hear(socket)
        text = encode_from_agent(output(piece(stream.id, "long ago"), ended(stream.id)))
        await socket.send_bytes(b"\0\0\0\1\0" + text[:20])
        await say(socket, Heartbeat())
        await socket.send_bytes(b"\0\0\0\1\1" + text[20:])
        assert await anext(stream) == Token("long ago", "content", (0,))
    await socket.close()


class Heard(FleetRuntime):
    """Counts the parts of messages that it hears of."""

    num_parts = 0

    def agent_heard(self, link: LinkId) -> None:
        super().agent_heard(link)
        self.num_parts += 1


async def test_pieces_are_signs_of_life() -> None:
    """They take longer than the timeout, all of them together; without them the agent is lost."""
    app = web.Application()
    fleet = Fleet(Limits(heartbeat_interval=4.0, heartbeat_timeout=10.0))
    loop = asyncio.get_running_loop()
    runtime = Heard(fleet, recorder=RecordingRecorder(), clock=lambda: loop.time())
    app.router.add_get(PATH, socket_of(runtime).handle)
    async with TestClient(TestServer(app)) as client, asyncio.TaskGroup() as tasks:
        async with given_time() as time:
            timer = tasks.create_task(runtime.run())
            socket = await join(client)
            for number in range(1, 6):
                await socket.send_bytes(b"\0\0\0\1\0 ")
                await until(lambda number=number: runtime.num_parts == number)
                await time.passes(8.0)
            assert runtime.views.totals().num_agents == 1
            await time.passes_until(lambda: runtime.views.totals().num_agents == 0, step=1.0)
            timer.cancel()
        await socket.close()


async def test_the_first_frame_has_to_be_hello(client: Client) -> None:
    socket = await client.ws_connect(PATH)
    await say(socket, output())
    closing = await socket.receive()
    assert closing.extra == "the first frame must be `hello`, not `output`"


async def test_who_says_nothing_is_sent_away() -> None:
    app = web.Application()
    fleet = Fleet(Limits(heartbeat_timeout=0.02))
    app.router.add_get(PATH, socket_of(FleetRuntime(fleet, recorder=RecordingRecorder())).handle)
    async with TestClient(TestServer(app)) as client:
        socket = await client.ws_connect(PATH)
        closing = await socket.receive()
        assert closing.extra == "the agent sent no hello within 0.02 s"


async def test_leaving_before_hello_disturbs_nobody(client: Client, runtime: FleetRuntime) -> None:
    socket = await client.ws_connect(PATH)
    await socket.close()
    other = await join(client)
    assert runtime.views.totals().num_agents == 1
    await other.close()


async def test_dialling_again_closes_the_old_socket(client: Client, runtime: FleetRuntime) -> None:
    old = await client.ws_connect(PATH)
    await say(old, hello("a1"))
    welcome = await hear(old)
    assert isinstance(welcome, Welcome)
    new = await client.ws_connect(PATH)
    await say(new, replace(hello("a1"), secret=welcome.secret))
    assert isinstance(await hear(new), Welcome)
    closing = await old.receive()
    assert (closing.type, closing.extra) == (WSMsgType.CLOSE, "the agent has dialled again")
    await asyncio.wait_for(old.close(), HANGS)
    stream = runtime.open(request(), caller=ANONYMOUS)
    assert await hear(new) == Start(id=stream.id, request=replace(request(), seed=7))
    stream.close()
    await new.close()


async def test_who_says_the_id_of_another_is_refused_and_that_one_stays(
    client: Client, runtime: FleetRuntime
) -> None:
    first = await join(client)
    thief = await client.ws_connect(PATH)
    await say(thief, hello("a1"))
    refusal = await hear(thief)
    assert isinstance(refusal, Reject)
    assert (refusal.code, refusal.retry) == ("identity_taken", True)
    assert (await thief.receive()).type == WSMsgType.CLOSE
    stream = runtime.open(request(), caller=ANONYMOUS)
    assert isinstance(await hear(first), Start)
    stream.close()
    await first.close()


async def test_goodbye_is_said_before_the_close(client: Client, runtime: FleetRuntime) -> None:
    socket = await join(client)
    runtime.goodbye()
    assert await hear(socket) == Goodbye()
    closing = await socket.receive()
    assert (closing.type, closing.data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)
    assert closing.extra == "the balancer is shutting down"


async def test_an_agent_without_a_certificate_is_refused_where_one_is_needed(
    runtime: FleetRuntime,
) -> None:
    app = web.Application(middlewares=[middleware()])
    refused: list[Unauthorized] = []
    report = partial(note, refused)
    app.router.add_get(PATH, socket_of(runtime, report, needs_certificate=True).handle)
    async with TestClient(TestServer(app)) as client:
        response = await client.get(PATH)
        assert [each.kind for each in refused] == ["certificate"]
        assert response.status == 401
        error = (await response.json())["error"]
        assert error["code"] == "unauthorized"
        assert "showed no certificate" in error["message"]


async def test_operators_are_told_of_an_agent_that_is_not_let_in(runtime: FleetRuntime) -> None:
    app = web.Application(middlewares=[middleware()])
    refused: list[Unauthorized] = []
    app.router.add_get(PATH, socket_of(runtime, partial(note, refused)).handle)
    async with TestClient(TestServer(app)) as client:
        owner = await join(client)
        assert refused == []
        thief = await client.ws_connect(PATH)
        await say(thief, hello("a1"))
        assert isinstance(await hear(thief), Reject)
        assert [each.kind for each in refused] == ["rejected"]
        assert "another process with this agent id is connected" in refused[0].message
        runtime.goodbye()
        late = await client.ws_connect(PATH)
        await say(late, hello("a2"))
        await hear(late)
        assert len(refused) == 1, "a balancer that goes lets nobody in"
        for each in (owner, thief, late):
            await each.close()


async def test_an_agent_hears_which_balancer_answers(client: Client) -> None:
    names = []
    for _ in range(2):
        socket = await client.ws_connect(PATH)
        names.append(socket._response.headers[BALANCER_HEADER])
        await socket.close()
    assert names[0] and names[0] == names[1]


ID = RequestId("a" * 32)
PROB = LogProb(token=151_643, piece=b"<|endoftext|>", log_prob=-12.345678901234)
PROBS = TokenLogProbs(PROB, (PROB,) * MAX_TOP_LOGPROBS)
VECTOR = base64.b64encode(bytes(4 * 2560)).decode()

HONEST: dict[str, FromAgent] = {
    "embeddings": Reply(id=ID, result=Embedded(vectors=(Vector(vector=VECTOR),) * MAX_INPUTS)),
    "scores": Reply(id=ID, result=Ranked(scores=(Score(score=-0.1234567891234),) * MAX_INPUTS)),
    "log": LogRead(
        id=ID,
        lines=(LogLine(number=2**52, at=1e9, level="info", text='"\n' * MAX_LINE),) * MAX_LINES,
    ),
    "evicted": Evicted(keys=(2**62,) * 4096),
    "a call": Output(
        items=(Called(id=ID, call_id="c", name="f", arguments='{"text": "x"}\n' * 60_000),)
    ),
}


@pytest.mark.parametrize("kind", HONEST)
async def test_the_largest_honest_messages_come_whole(kind: str) -> None:
    text = encode_from_agent(HONEST[kind])
    assert PIECE_BYTES < len(text) <= MAX_REPLY_BYTES
    assert await decoded(text) == HONEST[kind]


async def test_a_prompt_with_all_its_log_probabilities_comes_in_parts() -> None:
    piece = Piece(id=ID, text="the prompt", kind="prompt", log_probs=(PROBS,) * 2048)
    parts = [*outputs((piece,))]
    assert len(parts) == 8
    items = [
        item
        for part in parts
        if isinstance(message := await decoded(encode_from_agent(part)), Output)
        for item in message.items
        if isinstance(item, Piece)
    ]
    assert "".join(item.text for item in items) == "the prompt"
    assert {item.kind for item in items} == {"prompt"}
    assert sum((item.log_probs or () for item in items), ()) == piece.log_probs


@pytest.mark.parametrize("num_tokens", [0, 1, 5_000, 100_000, MAX_TOKEN_IDS])
async def test_tokens_of_a_text_are_decoded_in_parts(num_tokens: int) -> None:
    reply = Reply(id=ID, result=Tokenized(tokens=tuple(range(num_tokens))))
    assert await decoded(encode_from_agent(reply)) == reply


async def test_others_run_while_tokens_are_decoded() -> None:
    text = encode_from_agent(Reply(id=ID, result=Tokenized(tokens=(151_643,) * 500_000)))
    num_turns = 0
    decoding = asyncio.ensure_future(decoded(text))
    while not decoding.done():
        await asyncio.sleep(0)
        num_turns += 1
    assert num_turns > len(text) // (128 * 1024)


def tokenized(tokens: str) -> bytes:
    return (
        f'{{"type":"reply","id":"a","result":{{"type":"tokenized","tokens":[{tokens}]}}}}'.encode()
    )


@pytest.mark.parametrize("bad", ["-1", "[]", "1.5", "]", "],[", '"x"', "1]}},{", ",", "null"])
async def test_what_is_no_list_of_tokens_is_none(bad: str) -> None:
    some = ",".join(["7"] * 50_000)
    with pytest.raises(ValidationError):
        await decoded(tokenized(f"{some},{bad},{some}"))


COSTLY: dict[str, bytes] = {
    "items": b'{"type":"output","items":[' + b'{"type":"busy","id":""},' * 100_000 + b"0]}",
    "unknown fields": json.dumps(
        {"type": "heartbeat"} | {f"k{number}": 0 for number in range(100_000)}
    ).encode(),
    "numbers": b'{"type":"evicted","keys":[' + b"7," * 1_000_000 + b"7]}",
    "lists": b'{"type":"evicted","keys":[' + b"[]," * 100_000 + b"7]}",
    "escapes": b'{"type":"reply","x":"' + b"\\n" * 2_000_000 + b'"}',
    "bytes": b'{"type":"output","x":"' + b"x" * MAX_MESSAGE_BYTES + b'"}',
    "tokens": tokenized("7," * MAX_TOKEN_IDS + "7"),
}


@pytest.mark.parametrize("kind", COSTLY)
async def test_what_would_take_long_is_refused(kind: str) -> None:
    with pytest.raises(CostlyMessage):
        await decoded(COSTLY[kind])


async def test_so_many_items_are_too_many() -> None:
    items: Any = (Busy(id=ID),) * (MAX_ITEMS + 1)
    with pytest.raises(ValidationError, match="at most 1024 items"):
        await decoded(encode_from_agent(Output(items=items)))


def test_an_agent_does_not_send_more_tokens_than_a_balancer_takes() -> None:
    codec = AgentCodec(lambda _id: None)
    with pytest.raises(ValueError, match="more than"):
        codec.encode(Reply(id=ID, result=Tokenized(tokens=(7,) * (MAX_TOKEN_IDS + 1))))
