"""Everyone who watches sees the fleet first and then its changes; a slow reader sees the newest."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from arriero.balancer.fleet.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.view import FleetView
from arriero.balancer.management.events import EventHub, Mailbox
from arriero.balancer.management.metrics import Metrics
from arriero.shared.errors import RateLimited, ShuttingDown
from arriero.shared.inference import GenerateRequest
from tests.balancer.management.peers import Peer


class CountingFleetRuntime(FleetRuntime):
    """Counts how often the fleet was looked at."""

    num_views = 0

    def view(self) -> FleetView:
        self.num_views += 1
        return super().view()


@asynccontextmanager
async def running(hub: EventHub) -> AsyncIterator[None]:
    task = asyncio.create_task(hub.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def events(frames: bytes) -> Iterator[tuple[str, Any]]:
    """The events in what a mailbox held."""
    for block in frames.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "event" in fields:
            yield fields["event"], json.loads(fields["data"])


async def until(mailbox: Mailbox, event: str, names: list[str]) -> Any:
    """The first `event` that knows exactly the agents of these names."""
    while True:
        for found, body in events(await mailbox.take()):
            if found == event and [agent["name"] for agent in body["agents"]] == names:
                return body


async def test_a_mailbox_holds_the_newest_of_each_event() -> None:
    mailbox = Mailbox()
    for number in range(1000):
        mailbox.put("fleet", b"fleet %d\n" % number)
        mailbox.put("throughput", b"throughput %d\n" % number)
    assert await mailbox.take() == b"fleet 999\nthroughput 999\n"


async def test_a_mailbox_waits_for_something_to_take() -> None:
    mailbox = Mailbox()
    taking = asyncio.create_task(mailbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    mailbox.put("fleet", b"news")
    assert await taking == b"news"


async def test_a_closed_mailbox_has_nothing_more() -> None:
    mailbox = Mailbox()
    mailbox.put("fleet", b"news")
    mailbox.close()
    assert await mailbox.take() == b""


async def test_who_subscribes_gets_the_whole_fleet_at_once(
    runtime: FleetRuntime, hub: EventHub
) -> None:
    Peer(runtime, "a")
    with hub.subscribe() as mailbox:
        ((name, body),) = events(await mailbox.take())
    assert name == "fleet"
    assert [agent["name"] for agent in body["agents"]] == ["a"]


async def test_changes_follow(runtime: FleetRuntime, hub: EventHub) -> None:
    async with running(hub):
        with hub.subscribe() as mailbox:
            await until(mailbox, "fleet", [])
            peer = Peer(runtime, "a")
            await until(mailbox, "fleet", ["a"])
            peer.leave()
            await until(mailbox, "fleet", [])


async def test_throughput_is_measured_while_somebody_watches(runtime: FleetRuntime) -> None:
    now = [0.0]
    hub = EventHub(runtime, clock=lambda: now[0], interval=0.0)
    peer = Peer(runtime, "a")
    stream = runtime.open(GenerateRequest(prompt="Once"))
    async with running(hub):
        with hub.subscribe() as mailbox:
            while "throughput" not in [name for name, _ in events(await mailbox.take())]:
                pass
            peer.generate(stream.id, 30)
            now[0] += 2.0
            rates = [0.0]
            while not rates[-1]:
                rates += [
                    body["tokens_per_second"]
                    for name, body in events(await mailbox.take())
                    if name == "throughput"
                ]
    assert rates[-1] == 15.0
    stream.close()


async def test_each_event_is_rendered_once_for_all(runtime: FleetRuntime, hub: EventHub) -> None:
    async with running(hub):
        with hub.subscribe() as first, hub.subscribe() as second:
            await until(first, "fleet", [])
            await until(second, "fleet", [])
            hub._publish("fleet", frame := b"event: fleet\n\n")
            assert await first.take() is frame
            assert await second.take() is frame


async def test_nothing_is_rendered_while_nobody_watches() -> None:
    runtime = CountingFleetRuntime(Fleet(Limits()), recorder=Metrics(), watch_interval=0.0)
    hub = EventHub(runtime, interval=0.0)

    async def views_of_ten_rounds() -> int:
        before = runtime.num_views
        for number in range(10):
            Peer(runtime, f"a{number}").leave()
            await asyncio.sleep(0)
        return runtime.num_views - before

    async with running(hub):
        assert await views_of_ten_rounds() == 0
        with hub.subscribe():
            assert await views_of_ten_rounds() > 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await views_of_ten_rounds() == 0
        with hub.subscribe():
            assert await views_of_ten_rounds() > 0


async def test_watchers_are_bounded(runtime: FleetRuntime) -> None:
    hub = EventHub(runtime, max_subscribers=2)
    with hub.subscribe(), hub.subscribe():
        assert hub.num_subscribers == 2
        with pytest.raises(RateLimited, match="2 readers"), hub.subscribe():
            pass
    with hub.subscribe():
        assert hub.num_subscribers == 1


async def test_closing_ends_every_stream_and_lets_nobody_in(hub: EventHub) -> None:
    with hub.subscribe() as first, hub.subscribe() as second:
        hub.close()
        assert await first.take() == b""
        assert await second.take() == b""
        with pytest.raises(ShuttingDown), hub.subscribe():
            pass


async def test_over_http_the_snapshot_comes_first_and_the_end_is_clean(
    client: TestClient, hub: EventHub
) -> None:
    async with running(hub), client.get("/api/v1/events") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        assert await response.content.readline() == b"event: fleet\n"
        hub.close()
        assert response.content.at_eof() or await response.content.read()
        async with client.get("/api/v1/events") as refused:
            assert refused.status == 503
            assert (await refused.json())["error"]["code"] == "shutting_down"
