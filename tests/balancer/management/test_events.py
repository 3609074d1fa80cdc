"""Readers see the fleet first and then its changes, each rendered once, and go on after a break."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.core.fleet_views import FleetViews
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.view import FleetDelta
from arriero.balancer.management.event_history import MAX_BYTES
from arriero.balancer.management.events import (
    MAX_PAUSE,
    RENDER_SHARE,
    EventHub,
    Reader,
    pause_after,
)
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.management.troubles import of_hosts
from arriero.shared.errors import RateLimited, ShuttingDown
from arriero.shared.inference import GenerateRequest
from tests.balancer.cluster.beside import beside
from tests.balancer.management.apps import management_app
from tests.balancer.management.peers import Peer
from tests.waiting import HANGS


class CountingViews(FleetViews):
    """Counts how often somebody asked what changed."""

    num_looks = 0

    def changes_since(self, revision: int) -> FleetDelta | None:
        self.num_looks += 1
        return super().changes_since(revision)


@asynccontextmanager
async def running(hub: EventHub) -> AsyncIterator[None]:
    task = asyncio.create_task(hub.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def events(frames: Iterable[bytes]) -> Iterator[tuple[str, str, Any]]:
    """The events in `frames`: name, id and body."""
    for frame in frames:
        assert frame.endswith(b"\n\n")
        fields = dict(line.split(": ", 1) for line in frame.decode().rstrip("\n").split("\n"))
        yield fields["event"], fields.get("id", ""), json.loads(fields["data"])


class Follower:
    """What a page makes of the events."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.agents: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[str, str, Any]] = []
        self.last_id = ""

    async def read(self) -> list[tuple[str, str, Any]]:
        news = list(events(await asyncio.wait_for(self.reader.take(), HANGS)))
        for name, id, body in news:
            self.last_id = id or self.last_id
            if name == "snapshot":
                self.agents = {}
            if name != "throughput":
                for left in body.get("agents_left", ()):
                    del self.agents[left]
                for agent in body.get("agents", ()):
                    self.agents[agent["id"]] = self.agents.get(agent["id"], {}) | agent
        self.events += news
        return news

    async def until(self, *names: str) -> None:
        """Read until exactly the agents of these names are there."""
        while sorted(agent["name"] for agent in self.agents.values()) != sorted(names):
            await self.read()

    def names(self) -> list[str]:
        return [name for name, _, _ in self.events]


async def test_a_reader_gets_the_whole_fleet_at_once(runtime: FleetRuntime, hub: EventHub) -> None:
    Peer(runtime, "a")
    with hub.subscribe() as reader:
        [(name, id, body)] = events(await reader.take())
    assert name == "snapshot"
    assert id
    assert [agent["name"] for agent in body["agents"]] == ["a"]


async def test_changes_follow_as_deltas(runtime: FleetRuntime, hub: EventHub) -> None:
    async with running(hub):
        with hub.subscribe() as reader:
            follower = Follower(reader)
            await follower.read()
            peer = Peer(runtime, "a")
            await follower.until("a")
            peer.leave()
            await follower.until()
    assert follower.names().count("snapshot") == 1
    ids = [id for name, id, _ in follower.events if name != "throughput"]
    assert len(set(ids)) == len(ids) >= 3


async def test_what_other_balancers_have_is_told_and_told_no_more_when_it_ends(
    runtime: FleetRuntime, metrics: Metrics
) -> None:
    there = FleetRuntime(Fleet(Limits()), recorder=metrics)
    for fleet in (runtime, there):
        Peer(fleet, "a", slots=3)
    hub = EventHub(runtime, beside({"there": there}), interval=0.01)
    async with running(hub):
        with hub.subscribe() as reader:
            follower = Follower(reader)
            with there.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS) as theirs:
                while not follower.agents or follower.agents["id-a"]["slots"]["busy"] != 1:
                    await follower.read()
            while follower.agents["id-a"]["slots"]["busy"] != 0:
                await follower.read()
    told = [body for name, _, body in follower.events if name == "delta"]
    (begun,) = [body for body in told if body.get("requests")]
    assert [(each["id"], each["balancer"]) for each in begun["requests"]] == [(theirs.id, "there")]
    assert (begun["num_requests"], begun["slots"]["busy"]) == (1, 1)
    assert told[-1]["requests_ended"] == [theirs.id]
    assert (told[-1]["num_requests"], told[-1]["slots"]["busy"]) == (0, 0)


async def test_a_delta_has_the_size_of_the_change(runtime: FleetRuntime, hub: EventHub) -> None:
    for number in range(300):
        Peer(runtime, f"a{number}")
    async with running(hub):
        with hub.subscribe() as reader:
            follower = Follower(reader)
            await follower.read()
            with runtime.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS):
                while "delta" not in follower.names():
                    await follower.read()
    delta = next(body for name, _, body in follower.events if name == "delta")
    assert len(delta["agents"]) == len(delta["requests"]) == 1
    assert len(json.dumps(delta)) < 1000


async def test_a_reader_that_comes_back_goes_on(runtime: FleetRuntime, hub: EventHub) -> None:
    with hub.subscribe() as reader:
        follower = Follower(reader)
        await follower.read()
    Peer(runtime, "a")
    with hub.subscribe(follower.last_id) as follower.reader:
        await follower.until("a")
    assert follower.names() == ["snapshot", "delta"]


async def test_the_id_of_another_balancer_means_nothing(
    runtime: FleetRuntime, hub: EventHub
) -> None:
    with EventHub(runtime).subscribe() as reader:
        [(_, id, _)] = events(await reader.take())
    with hub.subscribe(id) as reader:
        [(name, _, _)] = events(await reader.take())
    assert name == "snapshot"


async def test_a_slow_reader_begins_again(runtime: FleetRuntime) -> None:
    hub = EventHub(runtime, max_deltas=20)
    async with running(hub):
        with hub.subscribe() as slow, hub.subscribe() as quick:
            late, prompt = Follower(slow), Follower(quick)
            await late.read()
            for number in range(40):
                Peer(runtime, f"a{number}")
                await prompt.until(*(f"a{n}" for n in range(number + 1)))
            assert hub.numbers().num_bytes_behind <= hub.numbers().num_bytes <= 3 * MAX_BYTES
            await late.until(*(f"a{n}" for n in range(40)))
    assert late.names().count("snapshot") == 2


async def test_throughput_is_measured_while_somebody_reads(runtime: FleetRuntime) -> None:
    now = [0.0]
    hub = EventHub(runtime, clock=lambda: now[0], interval=0.0)
    peer = Peer(runtime, "a")
    stream = runtime.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS)
    async with running(hub):
        with hub.subscribe() as reader:
            follower = Follower(reader)
            while "throughput" not in follower.names():
                await follower.read()
            peer.generate(stream.id, 30)
            now[0] += 2.0
            points: list[Any] = []
            while not points:
                news = await follower.read()
                points = [body for name, _, body in news if body.get("tokens_per_second")]
    assert points[0]["tokens_per_second"] == 15.0
    assert points[0]["agents"] == {"id-a": 15.0}
    stream.close()


async def test_places_are_told_though_nothing_else_changes(runtime: FleetRuntime) -> None:
    now = [0.0]
    hub = EventHub(runtime, clock=lambda: now[0], interval=0.0)
    first, second = (
        runtime.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS) for _ in range(2)
    )
    async with running(hub):
        with hub.subscribe() as reader:
            follower = Follower(reader)
            [(_, _, snapshot)] = await follower.read()
            assert [each["position"] for each in snapshot["requests"]] == [1, 2]
            first.close()
            while "delta" not in follower.names():
                await follower.read()
            now[0] += 1.5
            changed: list[Any] = []
            while not changed:
                news = await follower.read()
                changed = [each for _, _, body in news for each in body.get("requests", ())]
    assert [(each["id"], each["position"]) for each in changed] == [(second.id, 1)]
    second.close()


async def test_each_event_is_rendered_once_for_all(runtime: FleetRuntime, hub: EventHub) -> None:
    async with running(hub):
        with hub.subscribe() as first, hub.subscribe() as second:
            [snapshot] = await first.take()
            assert (await second.take())[0] is snapshot
            Peer(runtime, "a")
            [delta] = [frame for frame in await first.take() if b"event: delta" in frame]
            [same] = [frame for frame in await second.take() if b"event: delta" in frame]
            assert same is delta


async def test_what_is_wrong_is_told_and_told_again_if_it_differs(hub: EventHub) -> None:
    lost: list[str] = []
    hub.find_troubles = lambda: [*of_hosts(lost)]
    async with running(hub):
        with hub.subscribe() as reader:
            follower = Follower(reader)
            [(_, _, snapshot)] = [each for each in await follower.read() if each[0] == "snapshot"]
            assert snapshot["troubles"] == []
            for hosts in (["a"], ["a", "b"], []):
                lost[:] = hosts
                while "troubles" not in (body := (await follower.read())[0][2]):
                    pass
                assert body["troubles"] == [*of_hosts(hosts)]
    lost[:] = ["c"]
    with hub.subscribe() as reader:
        [(_, _, snapshot)] = events(await reader.take())
    assert snapshot["troubles"] == [*of_hosts(lost)], "who reads anew sees nothing old"


async def test_nothing_is_rendered_while_nobody_reads() -> None:
    fleet = Fleet(Limits())
    runtime = FleetRuntime(fleet, recorder=Metrics(), watch_interval=0.0)
    runtime.views = views = CountingViews(fleet, time.monotonic)
    hub = EventHub(runtime, interval=0.0)

    async def looks_of_ten_rounds() -> int:
        before = views.num_looks
        for number in range(10):
            Peer(runtime, f"a{number}").leave()
            await asyncio.sleep(0)
        return views.num_looks - before

    async with running(hub):
        assert await looks_of_ten_rounds() == 0
        with hub.subscribe():
            assert await looks_of_ten_rounds() > 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await looks_of_ten_rounds() == 0
        with hub.subscribe():
            assert await looks_of_ten_rounds() > 0


async def test_a_reader_that_is_woken_for_nothing_waits_on(hub: EventHub) -> None:
    with hub.subscribe() as reader:
        await reader.take()
        reader.notify()
        taking = asyncio.create_task(reader.take())
        await asyncio.sleep(0)
        assert not taking.done(), "an empty answer would end its stream"
        hub.close()
        assert await taking == []


async def test_readers_are_bounded(runtime: FleetRuntime) -> None:
    hub = EventHub(runtime, max_subscribers=2)
    with hub.subscribe(), hub.subscribe():
        assert hub.num_subscribers == 2
        with pytest.raises(RateLimited, match="2 readers"), hub.subscribe():
            pass
    with hub.subscribe():
        assert hub.num_subscribers == 1


async def test_a_key_leaves_readers_to_others(runtime: FleetRuntime) -> None:
    hub = EventHub(runtime, max_subscribers=4)
    with hub.subscribe("", "ana"), hub.subscribe("", "ana"):
        with (
            pytest.raises(RateLimited, match="2 of them with this key; all keys share 4"),
            hub.subscribe("", "ana"),
        ):
            pass
        with hub.subscribe("", "ben"):
            assert hub.num_subscribers == 3
    assert hub.shares.total == 0


async def test_closing_ends_every_stream_and_lets_nobody_in(hub: EventHub) -> None:
    with hub.subscribe() as first, hub.subscribe() as second:
        hub.close()
        assert await first.take() == []
        assert await second.take() == []
        with pytest.raises(ShuttingDown), hub.subscribe():
            pass


async def test_over_http_the_snapshot_comes_first_and_the_end_is_clean(
    client: TestClient, hub: EventHub
) -> None:
    async with running(hub), client.get("/api/v1/events") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        assert await response.content.readline() == b"event: snapshot\n"
        hub.close()
        assert response.content.at_eof() or await response.content.read()
        async with client.get("/api/v1/events") as refused:
            assert refused.status == 503
            assert (await refused.json())["error"]["code"] == "shutting_down"


async def first_event(client: TestClient) -> tuple[str, Any]:
    """The name and the body of the first event of a new connection."""
    async with client.get("/api/v1/events") as response:
        [(name, _, body)] = events([await response.content.readuntil(b"\n\n")])
    return name, body


async def test_over_http_the_first_snapshot_is_of_this_moment(
    client: TestClient, runtime: FleetRuntime, hub: EventHub
) -> None:
    peer = Peer(runtime, "a", slots=2)
    async with running(hub):
        with runtime.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS):
            _, before = await first_event(client)
        _, after = await first_event(client)
        peer.leave()
        name, last = await first_event(client)
    assert before["slots"] == {"total": 2, "busy": 1}
    assert after["slots"] == {"total": 2, "busy": 0}
    assert name == "snapshot"
    assert last["agents"] == []


async def test_over_http_the_first_snapshot_has_what_other_balancers_have(
    runtime: FleetRuntime, metrics: Metrics, desired_state: DesiredStateService
) -> None:
    there = FleetRuntime(Fleet(Limits()), recorder=metrics)
    for fleet in (runtime, there):
        Peer(fleet, "a", slots=3)
    hub = EventHub(runtime, beside({"there": there}))
    server = TestServer(management_app(runtime, hub, metrics, desired_state=desired_state))
    async with running(hub), TestClient(server) as client:
        with there.open(GenerateRequest(prompt="Once"), caller=ANONYMOUS) as theirs:
            _, snapshot = await first_event(client)
    assert [each["id"] for each in snapshot["requests"]] == [theirs.id]
    assert snapshot["slots"] == {"total": 3, "busy": 1}


@pytest.mark.parametrize("place", ["header", "query"])
async def test_over_http_the_last_event_is_gone_on_from(
    client: TestClient, runtime: FleetRuntime, hub: EventHub, place: str
) -> None:
    async with running(hub):
        async with client.get("/api/v1/events") as response:
            await response.content.readline()
            last_id = (await response.content.readline()).decode().strip().removeprefix("id: ")
        Peer(runtime, "a")
        headers = {"Last-Event-ID": last_id} if place == "header" else {}
        query = {"last_event_id": last_id} if place == "query" else {}
        async with client.get("/api/v1/events", headers=headers, params=query) as response:
            assert await response.content.readline() == b"event: delta\n"


def test_the_dearer_a_delta_the_later_the_next() -> None:
    assert pause_after(0.0) == 0.0
    cost = 0.001
    assert cost / (cost + pause_after(cost)) <= RENDER_SHARE
    assert pause_after(1.0) == MAX_PAUSE, "however large the fleet, a page is never far behind"
