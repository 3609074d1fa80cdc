"""The history over REST, as the document describes it."""

from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.cluster.answers import What
from arriero.balancer.cluster.cluster_view import ClusterView
from arriero.balancer.cluster.questions import Replies, Reply
from arriero.balancer.cluster.responder import Responder
from arriero.balancer.fleet.recorder import Origin
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.history.history_task import HistoryTask
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.persistence import Persistence
from arriero.balancer.store.history_writer import HistoryWriter
from arriero.balancer.store.records import StoreStatus
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import StoreUrl
from tests.balancer import documents
from tests.balancer.fleet.recording import ManualClock
from tests.balancer.history.builders import TOTALS, ending
from tests.balancer.management.apps import management_app
from tests.balancer.store.fakes import FakeStore

pytestmark = pytest.mark.usefixtures("closes_stores")

DOCUMENT: dict[str, Any] = documents.management()


class Writer(HistoryWriter):
    """Says of the store what a test sets."""

    now = StoreStatus()

    def status(self) -> StoreStatus:
        return self.now


class Port:
    """The management port over a history that is filled by hand, beside another balancer."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_700_000_000.0)
        self.history = HistoryTask(clock=self.clock)
        self.other = HistoryTask(clock=self.clock)
        self.silent: tuple[str, ...] = ()
        self.has_others = False
        self.writer = Writer(Store(StoreUrl("memory")))
        self.client: TestClient

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.client.get(path) as response:
            body = await response.json()
        described = DOCUMENT["paths"][path.split("?")[0]]["get"]["responses"][str(response.status)]
        schema = described["content"]["application/json"]["schema"]
        schema = schema | {"components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(schema).validate(body)
        return response.status, body

    def with_others(self, runtime: FleetRuntime) -> ClusterView:
        responder = Responder(runtime, history=self.other)

        async def ask(what: What, about: str) -> Replies:
            body = responder.respond(what, about)
            assert body is not None
            return Replies((Reply("other", body),), self.silent)

        return ClusterView(ask, lambda: "here" if self.has_others else None)


@pytest.fixture
async def port(
    runtime: FleetRuntime, hub: EventHub, metrics: Metrics, desired_state: DesiredStateService
) -> AsyncIterator[Port]:
    port = Port()
    persistence = Persistence(Store(StoreUrl("memory")))
    persistence.history, persistence.writer = port.history, port.writer
    app = management_app(
        runtime,
        hub,
        metrics,
        desired_state=desired_state,
        persistence=persistence,
        cluster=port.with_others(runtime),
    )
    async with TestClient(TestServer(app)) as port.client:
        yield port


async def test_the_history(port: Port) -> None:
    for agent in ("ana", "luz"):
        port.history.recorder.tokens(6, Origin(agent, "tiny"))
        port.history.recorder.between_tokens((0.01,), Origin(agent, "tiny"))
        port.clock.now += 1
        port.history.tick(TOTALS)
    status, body = await port.get("/api/v1/history?since=1m")
    assert (status, body["step"], body["by"]) == (200, 1, None)
    assert body["times"] == [1_700_000_000, 1_700_000_001]
    assert body["levels"][0]["queue_depth"] == 3
    assert [line["tokens_per_second"] for line in body["lines"]] == [[6, 6]]
    _, body = await port.get("/api/v1/history?by=agent&step=10")
    assert {line["name"]: line["tokens_per_second"] for line in body["lines"]} == {
        "ana": [3],
        "luz": [3],
    }


async def test_the_past_of_other_balancers(port: Port) -> None:
    port.history.share(FakeStore().history)
    port.has_others = True
    for history, name in ((port.history, "a"), (port.other, "b")):
        history.recorder.tokens(6, Origin("ana", "tiny"))
        history.recorder.ended(ending(name))
    port.clock.now += 1
    port.other.recorder.ended(ending("c"))
    for history in (port.history, port.other):
        history.tick(TOTALS)
    _, body = await port.get("/api/v1/history?since=1m&by=agent")
    assert body["lines"][0]["tokens_per_second"] == [12]
    assert body["levels"][0]["queue_depth"] == 2 * TOTALS.queue_depth
    assert "missing" not in body
    port.silent = ("old",)
    _, body = await port.get("/api/v1/history?since=1m")
    assert body["missing"] == ["old"]
    _, body = await port.get("/api/v1/requests?state=ended&limit=2")
    assert [each["id"] for each in body["requests"]] == ["c", "a"]
    assert (body["total"], body["missing"]) == (3, ["old"])
    _, body = await port.get(f"/api/v1/requests?state=ended&limit=2&before={body['next']}")
    assert ([each["id"] for each in body["requests"]], body["next"]) == (["b"], None)


async def test_a_parameter_that_is_wrong_is_named(port: Port) -> None:
    status, body = await port.get("/api/v1/history?by=colour")
    assert (status, body["error"]["code"]) == (400, "invalid_request")
    assert "`by`" in body["error"]["message"]
    status, body = await port.get("/api/v1/requests?state=ended&limit=0")
    assert status == 400
    assert "`limit`" in body["error"]["message"]


async def test_ended_requests(port: Port) -> None:
    port.history.recorder.ended(ending("a"))
    port.clock.now += 0.5
    port.history.recorder.ended(ending("b", "length", model="other"))
    status, body = await port.get("/api/v1/requests?state=ended")
    assert (status, body["total"]) == (200, 2)
    assert [each["id"] for each in body["requests"]] == ["b", "a"]
    assert body["requests"][1]["completion_tokens"] == 7
    assert body["next"] is None
    _, body = await port.get("/api/v1/requests?state=ended&model=tiny&limit=5")
    assert [each["id"] for each in body["requests"]] == ["a"]
    _, body = await port.get("/api/v1/requests")
    assert body == {"requests": [], "total": 0}


async def test_the_health_tells_of_the_store(port: Port) -> None:
    assert await port.get("/health") == (200, {"status": "ok", "store": "ok"})
    port.writer.now = StoreStatus(away_since=1.0, problem="connection refused")
    assert await port.get("/health") == (
        200,
        {"status": "ok", "store": "away", "store_problem": "connection refused"},
    )
    port.writer.now = StoreStatus(num_dropped=1, fault="some were lost")
    assert await port.get("/health") == (
        200,
        {"status": "ok", "store": "failing", "store_problem": "some were lost"},
    )
