import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.generation.local_generation import LocalGeneration, PromptSaver
from arriero.agent.generation.preparation import Preparation
from arriero.agent.generation.preparer import Preparer
from arriero.agent.generation.query_executor import QueryExecutor, TextQueries
from arriero.agent.link.balancer_secrets import BalancerSecrets
from arriero.agent.link.balancer_socket import BalancerSocket
from arriero.agent.link.connection import AWAY_AGAIN, Backoff, Connection
from arriero.agent.link.dialling import NO_KEY, AgentKey, dial
from arriero.agent.link.requests import Slots
from arriero.shared.inference import GenerateRequest, Notice, RequestId
from arriero.shared.lifecycle import StartupError
from arriero.shared.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Busy,
    Called,
    Ended,
    Heartbeat,
    Output,
    Piece,
    PromptRead,
    Refused,
    Reject,
    Start,
    Status,
    decode_from_agent,
)
from arriero.shared.models.assignments import Assign, Assignment, Reload
from tests.agent.fakes import (
    BYTES_INFO,
    Expected,
    FakeBalancer,
    FakeWorker,
    byte_model,
    ends_soon,
    soon,
)
from tests.agent.generation.outputs import a_store
from tests.agent.link.sessions import HELLO, make_requests, make_session, welcome
from tests.agent.stored import whole
from tests.waiting import given_time


def test_pauses_double_up_to_a_ceiling() -> None:
    backoff = Backoff()
    pauses = [backoff.next_pause(1.0) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_any_time_below_the_ceiling_may_be_drawn() -> None:
    backoff = Backoff()
    assert [backoff.next_pause(jitter) for jitter in (0.0, 0.5, 0.25)] == [0.0, 0.1, 0.1]


def test_a_success_starts_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.next_pause(1.0)
    backoff.reset()
    assert backoff.next_pause(1.0) == 0.1


def test_after_a_refused_key_it_waits_for_long() -> None:
    backoff = Backoff()
    assert [backoff.refused(jitter) for jitter in (0.0, 1.0)] == [30.0, 60.0]
    assert backoff.next_pause(1.0) == 5.0


LOGGER = "arriero.agent.link.connection"


class SlowSaver(PromptSaver):
    """Its saves end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: asyncio.Queue[Callable[[Notice | None], None]] = Expected()

    def save(self, key: str, prompt: StoredPrompt, reply: Callable[[Notice | None], None]) -> None:
        self.begun.put_nowait(reply)


class House:
    """The connections of one agent over one fake worker, without the daemon around them."""

    def __init__(self, folder: Path) -> None:
        self.slots = Slots(2)
        self.worker = FakeWorker(Path("m.gguf"))
        model = byte_model()
        preparer = Preparer(model, 16, store=a_store(folder))
        self.saver = SlowSaver()
        self.generation = LocalGeneration(
            Preparation(preparer), self.worker, self.saver, model.vocab.piece
        )
        self.worker.on_step = self.generation.stepped
        self.executor = QueryExecutor(TextQueries(model.vocab, preparer), None)
        self.numbers = count(1)
        self.connections: list[Connection] = []
        self.welcomes: asyncio.Queue[str] = Expected()
        self.dials: asyncio.Queue[str] = Expected()
        self.orders: asyncio.Queue[Assign | Reload] = Expected()
        self.key = NO_KEY
        self.ahead = 0.0
        """Seconds by which the connections' clock is ahead of the event loop's."""
        self.secrets = BalancerSecrets()

    def connection(self, url: str) -> Connection:
        session = make_session(
            make_requests(slots=self.slots, numbers=self.numbers), model=BYTES_INFO
        )
        connection = Connection(
            url,
            session,
            self.generation,
            self.executor,
            secrets=self.secrets,
            on_connected=lambda: self.welcomes.put_nowait(url),
            on_change=self.slots_changed,
            on_order=self.orders.put_nowait,
            dial=self.dial,
            clock=lambda: asyncio.get_running_loop().time() + self.ahead,
            jitter=lambda: 0.01,
        )
        self.connections.append(connection)
        return connection

    async def dial(self, url: str) -> BalancerSocket:
        self.dials.put_nowait(url)
        return await dial(url, key=self.key)

    async def several_dials(self) -> None:
        for _ in range(4):
            await self.dials.get()

    def slots_changed(self) -> None:
        for connection in self.connections:
            connection.slots_changed()

    @asynccontextmanager
    async def running(self, url: str) -> AsyncIterator[None]:
        task = asyncio.create_task(self.connection(url).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def balancer() -> AsyncIterator[FakeBalancer]:
    async with FakeBalancer.open() as balancer:
        yield balancer


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    house.generation.close()
    house.executor.close()


async def test_hello_goes_to_the_agents_door(house: House, balancer: FakeBalancer) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peers.get()
        assert await peer.next() == replace(HELLO, model=BYTES_INFO)
    assert balancer.paths == ["/api/v1/agent-socket"]


async def test_a_request_from_start_to_end(house: House, balancer: FakeBalancer) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peer()
        await peer.start("r", "hi")
        sequence = await house.worker.added.get()
        house.worker.say(sequence, "yes")
        [piece] = (await peer.output()).items
        assert isinstance(piece, Piece)
        assert (piece.text, piece.tokens) == ("yes", tuple(b"yes"))
        house.worker.say(sequence, "", is_last=True)
        read, ended = (await peer.output()).items
        assert isinstance(read, PromptRead)
        assert isinstance(ended, Ended)
        assert ended.finish_reason == "stop"


async def test_a_prompt_that_is_too_long(house: House, balancer: FakeBalancer) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peer()
        await peer.start("r", "x" * 50)
        [refused] = (await peer.output()).items
        assert isinstance(refused, Refused)
        assert refused.error.code == "prompt_too_long"


async def test_cancel_drops_the_sequence(house: House, balancer: FakeBalancer) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peer()
        await peer.start("r")
        sequence = await house.worker.added.get()
        await peer.cancel("r")
        [ended] = (await peer.output()).items
        assert isinstance(ended, Ended)
        assert ended.finish_reason == "cancelled"
        assert await house.worker.dropped.get() == sequence.id


async def test_orders_are_passed_on(house: House, balancer: FakeBalancer) -> None:
    orders = (
        Assign(revision=3, assignment=Assignment(name="m", source="file:///m.gguf")),
        Assign(revision=4),
        Reload(drain_timeout=1.5),
    )
    async with house.running(balancer.url):
        peer = await balancer.peer()
        for order in orders:
            await peer.say(order)
            assert await house.orders.get() == order


async def test_heartbeats_without_anything_else_to_say(
    house: House, balancer: FakeBalancer
) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peers.get()
        await peer.next()
        async with given_time() as time:
            await peer.say(welcome(interval=10.0, timeout=60.0))
            await house.welcomes.get()
            for _ in range(3):
                heard = asyncio.create_task(peer.socket.recv())
                await time.passes(9.0)
                assert not heard.done()
                await time.passes(1.0)
                assert decode_from_agent(await heard) == Heartbeat()


async def test_a_silent_balancer_is_left_and_dialled_again(
    house: House, balancer: FakeBalancer
) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peers.get()
        await peer.next()
        async with given_time() as time:
            await peer.say(welcome(interval=100.0, timeout=60.0))
            await house.welcomes.get()
            left = asyncio.create_task(peer.socket.wait_closed())
            await time.passes(59.0)
            assert not left.done()
            await time.passes_until(left.done, step=1.0)
        assert peer.socket.close_reason == "the balancer was silent for 60 s"
        await balancer.peer()


async def test_a_vanished_balancers_sequences_are_dropped(
    house: House, balancer: FakeBalancer
) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peer()
        await peer.start("r")
        sequence = await house.worker.added.get()
        peer.socket.transport.abort()
        assert await house.worker.dropped.get() == sequence.id
        assert house.slots.num_busy == 0
        again = await balancer.peer()
        await again.start("r")
        assert (await house.worker.added.get()).id != sequence.id


async def test_junk_ends_the_connection_and_nothing_else(
    house: House, balancer: FakeBalancer, caplog: pytest.LogCaptureFixture
) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peer()
        await peer.socket.send('{"type": "shrug"}')
        await soon(peer.socket.wait_closed())
        assert peer.socket.close_reason is not None
        assert peer.socket.close_reason.startswith("the balancer's frame: ")
        await balancer.peer()
        await house.welcomes.get()
    assert "the balancer's frame" in caplog.text


async def test_an_absence_is_logged_once_a_minute_and_its_end_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        async with FakeBalancer.open() as balancer:
            url = balancer.url
        async with house.running(url):
            await house.several_dials()
            assert caplog.text.count("cannot reach the balancer") == 1
            house.ahead = AWAY_AGAIN
            await house.several_dials()
            assert caplog.text.count("cannot reach the balancer") == 2
            async with FakeBalancer.open(int(url.rsplit(":", 1)[1])) as balancer:
                await balancer.peer()
                await house.welcomes.get()
    assert caplog.text.count("cannot reach the balancer") == 2
    assert caplog.text.count("connected to the balancer") == 1


async def test_a_rejection_for_good_ends_it(house: House, balancer: FakeBalancer) -> None:
    run = asyncio.create_task(house.connection(balancer.url).run())
    for _ in range(OLDEST_PROTOCOL, PROTOCOL_VERSION + 1):
        peer = await balancer.peers.get()
        await peer.say(Reject(reason="version 1 is too old", retry=False))
    with pytest.raises(StartupError) as caught:
        await soon(run)
    assert str(caught.value) == (
        f"balancer {balancer.url} refuses this agent: version 1 is too old"
    )


async def test_a_rejection_for_now_is_tried_again(house: House, balancer: FakeBalancer) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peers.get()
        await peer.say(Reject(reason="not yet", retry=True))
        await balancer.peer()


class TestTheEnd:
    async def test_of_an_idle_connection(self, house: House, balancer: FakeBalancer) -> None:
        connection = house.connection(balancer.url)
        run = asyncio.create_task(connection.run())
        peer = await balancer.peer()
        await house.welcomes.get()
        connection.drain(30.0)
        status = await peer.next()
        assert isinstance(status, Status)
        assert not status.accepting
        await soon(run)
        await soon(peer.socket.wait_closed())
        assert peer.socket.close_code == 1000

    async def test_waits_for_what_runs(self, house: House, balancer: FakeBalancer) -> None:
        connection = house.connection(balancer.url)
        run = asyncio.create_task(connection.run())
        peer = await balancer.peer()
        await peer.start("r")
        sequence = await house.worker.added.get()
        connection.drain(30.0)
        assert isinstance(await peer.next(), Status)
        await peer.start("s")
        assert isinstance((await peer.output()).items[0], Busy)
        house.worker.say(sequence, "the end", is_last=True)
        _, piece, ended = (await peer.output()).items
        assert isinstance(piece, Piece) and isinstance(ended, Ended)
        await soon(run)

    async def test_comes_at_the_deadline(self, house: House, balancer: FakeBalancer) -> None:
        connection = house.connection(balancer.url)
        run = asyncio.create_task(connection.run())
        peer = await balancer.peer()
        await peer.start("r")
        sequence = await house.worker.added.get()
        connection.drain(0.01)
        assert isinstance(await peer.next(), Status)
        [refused] = (await peer.output()).items
        assert isinstance(refused, Refused)
        assert refused.error.code == "shutting_down"
        await soon(run)
        assert house.worker.dropped.get_nowait() == sequence.id

    async def test_does_not_wait_for_a_balancer_that_vanishes(
        self, house: House, balancer: FakeBalancer
    ) -> None:
        connection = house.connection(balancer.url)
        run = asyncio.create_task(connection.run())
        peer = await balancer.peer()
        await peer.start("r")
        await house.worker.added.get()
        connection.drain(30.0)
        peer.socket.transport.abort()
        await soon(run)
        assert balancer.peers.empty()

    async def test_of_one_that_never_reached_its_balancer(self, house: House) -> None:
        async with FakeBalancer.open() as balancer:
            url = balancer.url
        connection = house.connection(url)
        run = asyncio.create_task(connection.run())
        await house.several_dials()
        connection.drain(30.0)
        await ends_soon(run)

    async def test_before_it_began(self, house: House, balancer: FakeBalancer) -> None:
        connection = house.connection(balancer.url)
        connection.drain(30.0)
        await soon(connection.run())
        assert balancer.paths == []

    async def test_of_an_engine_that_stopped(self, house: House, balancer: FakeBalancer) -> None:
        connection = house.connection(balancer.url)
        run = asyncio.create_task(connection.run())
        peer = await balancer.peer()
        await peer.start("r")
        await house.worker.added.get()
        connection.engine_stopped("the engine stopped")
        await soon(peer.socket.wait_closed())
        closed = (peer.socket.close_code, peer.socket.close_reason)
        assert closed == (1011, "the engine stopped"), (
            "no hang-up in good order: it may be at fault"
        )
        with pytest.raises(ConnectionClosed):
            await peer.output()  # not a word about the request: the balancer moves it
        await soon(run)


async def test_two_balancers_share_the_slots(house: House) -> None:
    async with (
        FakeBalancer.open() as first,
        FakeBalancer.open() as second,
        house.running(first.url),
        house.running(second.url),
    ):
        one, two = await first.peer(), await second.peer()
        await one.start("r")
        await one.start("s")
        sequence = await house.worker.added.get()
        await house.worker.added.get()
        await two.start("r")
        assert (await two.output()).items == (Busy(id=RequestId("r")),)
        house.worker.say(sequence, "done", is_last=True)
        assert isinstance(await one.next(), Output)
        status = await two.next()
        assert isinstance(status, Status)
        assert status.accepting
        await two.start("r")
        house.worker.say(await house.worker.added.get(), "hello")
        [piece] = (await two.output()).items
        assert isinstance(piece, Piece)
        assert piece.text == "hello"


async def test_a_slot_that_a_save_has_freed_is_told_to_the_others(house: House) -> None:
    """Even if the balancer whose request was saved has gone."""
    house.slots.total = 1
    saving = GenerateRequest(prompt="x", cache_key="k", save_cache=True)
    async with FakeBalancer.open() as other, house.running(other.url):
        waiting = await other.peer()
        async with FakeBalancer.open() as balancer, house.running(balancer.url):
            peer = await balancer.peer()
            await peer.say(Start(id=RequestId("r"), request=saving))
            sequence = await house.worker.added.get()
            house.worker.kept = whole(sequence.prompt.tokens, b"state")
            house.worker.say(sequence, "yes", is_last=True)
            reply = await house.saver.begun.get()
            await waiting.start("s")
            assert (await waiting.output()).items == (Busy(id=RequestId("s")),)
        assert house.slots.num_busy == 1
        reply(None)
        status = await waiting.next()
        assert isinstance(status, Status) and status.accepting


async def test_what_cannot_be_sent_ends_its_request_alone(
    house: House, balancer: FakeBalancer, caplog: pytest.LogCaptureFixture
) -> None:
    async with house.running(balancer.url):
        peer = await balancer.peer()
        await peer.start("r")
        guilty = await house.worker.added.get()
        await peer.start("s")
        sequence = await house.worker.added.get()
        [connection] = house.connections
        connection.produced(
            (Called(id=RequestId("r"), call_id="c", name="\ud800", arguments=""),), ()
        )
        [refused] = (await peer.output()).items
        assert isinstance(refused, Refused)
        assert (refused.id, refused.error.code) == ("r", "engine_failed")
        assert await house.worker.dropped.get() == guilty.id
        assert house.slots.num_busy == 1
        house.worker.say(sequence, "on", is_last=True)
        assert isinstance((await peer.output()).items[-1], Ended)
    assert "surrogates not allowed" in caplog.text


# ---- access keys


async def test_a_refused_key_is_told_and_tried_again_much_later(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: asyncio.Queue[str | None] = Expected()
    lines: asyncio.Queue[str] = Expected()
    heard = logging.Handler(logging.WARNING)
    monkeypatch.setattr(heard, "emit", lambda record: lines.put_nowait(record.getMessage()))
    logging.getLogger(LOGGER).addHandler(heard)
    body = b'{"error": {"code": "unauthorized", "message": "the key was revoked"}}'

    def refuse(socket: ServerConnection, request: Request) -> Response:
        refusals.put_nowait(request.headers.get("Authorization"))
        return Response(401, "Unauthorized", Headers(), body)

    async with serve(_never, "127.0.0.1", 0, process_request=refuse) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        house.key = AgentKey(None, {"ARRIERO_AGENT_KEY": "ark_secret"})
        async with house.running(url):
            assert await refusals.get() == "Bearer ark_secret"
            line = await lines.get()
            assert refusals.empty()
    logging.getLogger(LOGGER).removeHandler(heard)
    assert "the key was revoked; its key (of the role agent) comes from --key-file" in line
    assert "trying again in 30 s" in line
    assert "ark_secret" not in caplog.text


async def _never(socket: ServerConnection) -> None:
    raise AssertionError("nobody is let in")
