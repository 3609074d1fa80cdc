"""The diary and the hosts over REST and as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.diary_routes import DiaryQuery, host_json
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.persistence import Persistence
from arriero.balancer.store.records import DiaryEntry, SavedHost
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import StoreUrl
from arriero.shared.errors import InvalidRequest
from tests.balancer import documents
from tests.balancer.management.apps import management_app
from tests.waiting import HANGS

DOCUMENT = documents.management()
HOST = SavedHost(
    name="box",
    state="lost",
    since=5.0,
    first_seen=1.0,
    last_seen=5.0,
    document='{"labels":{"a":"b"},"devices":[{"name":"GPU","memory":8,"description":""}],"cores":8,"version":"1"}',
)


def entry(at: float) -> DiaryEntry:
    return DiaryEntry(at=at, kind="host_went", subject="box", message="it went", by="ana")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = Store(StoreUrl("memory"))
    await store.diary.write([entry(1.0), entry(2.0)], [HOST])
    yield store


@pytest.fixture
async def client(
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    desired_state: DesiredStateService,
    store: Store,
) -> AsyncIterator[TestClient]:
    app = management_app(
        runtime, hub, metrics, desired_state=desired_state, persistence=Persistence(store)
    )
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_what_happened(client: TestClient) -> None:
    body = await (await client.get("/api/v1/diary?limit=1")).json()
    [found] = body["entries"]
    assert (found["at"], found["by"], found["kind"]) == (2.0, "ana", "host_went")
    form = DOCUMENT["components"]["schemas"]["DiaryPage"]
    jsonschema.validate(body, {**form, "components": DOCUMENT["components"]})
    wrong = await client.get("/api/v1/diary?limit=0")
    assert (wrong.status, (await wrong.json())["error"]["field"]) == (400, "limit")


async def test_what_happens(client: TestClient, store: Store) -> None:
    headers = {"Accept": "text/event-stream"}
    async with client.get("/api/v1/diary", headers=headers) as response:
        first, second = [await event(response) for _ in range(2)]
        assert [each["at"] for each in (first, second)] == [1.0, 2.0]
    after = {"Last-Event-ID": str(first["number"]), **headers}
    async with client.get("/api/v1/diary", headers=after) as response:
        assert (await event(response))["at"] == 2.0


async def event(response: Any) -> dict[str, Any]:
    async with asyncio.timeout(HANGS):
        while True:
            line = await response.content.readline()
            if line.startswith(b"data: "):
                found: dict[str, Any] = json.loads(line[6:])
                return found


async def test_hosts(client: TestClient) -> None:
    body = await (await client.get("/api/v1/hosts")).json()
    assert body == {"hosts": []}, "it has not read them yet"
    assert (await client.delete("/api/v1/hosts/box")).status == 200
    assert (await client.delete("/api/v1/hosts/box")).status == 404


def test_a_host_has_what_was_remembered() -> None:
    host = host_json(HOST)
    assert (host["state"], host["labels"], host["cores"]) == ("lost", {"a": "b"}, 8)
    assert (host["version"], host["platform"], host["memory"]) == ("1", "", 0)
    form = DOCUMENT["components"]["schemas"]["Host"]
    jsonschema.validate(host, {**form, "components": DOCUMENT["components"]})


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "soon"}, "since"),
        ({"limit": "1001"}, "limit"),
        ({"last_event_id": "x"}, "last_event_id"),
        ({"until": "1"}, "until"),
    ],
)
def test_wrong_parameters(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        DiaryQuery.of(query, 2e9)
    assert caught.value.field == field


def test_parameters() -> None:
    assert DiaryQuery.of({"since": "1h", "limit": "5"}, 2e9) == DiaryQuery(2e9 - 3600, 5)
    assert DiaryQuery.of({"since": "1700000000"}, 2e9).since == 1.7e9
    assert DiaryQuery.of({"last_event_id": "7"}, 2e9, "8").after == 8
