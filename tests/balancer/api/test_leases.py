"""What is open for long ends with its key: streams of events, and agents' links."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.health import StoreHealth
from arriero.shared.messages import (
    FromAgent,
    Hello,
    Reject,
    Status,
    Welcome,
    decode_from_balancer,
    encode_from_agent,
)
from tests.balancer.access.builders import record, secret
from tests.balancer.fleet.builders import hello, model_info
from tests.balancer.management.apps import management_app
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

BOUND = record("rack", 2, "agent", limits=CallerLimits(models=("llama",)), labels=(("gpu", "yes"),))


@pytest.fixture
def access() -> Access:
    return Access([record("eye", 1, "viewer"), BOUND])


@pytest.fixture
def runtime() -> FleetRuntime:
    return FleetRuntime(Fleet(Limits()), recorder=Metrics(), clock=lambda: 0.0, watch_interval=0.0)


@pytest.fixture
async def client(runtime: FleetRuntime, access: Access) -> AsyncIterator[TestClient]:
    desired_state = DesiredStateService(runtime, MemoryStore(), StoreHealth("the store"))
    hub = EventHub(runtime)
    app = management_app(runtime, hub, Metrics(), desired_state=desired_state, access=access)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_stream_of_events_ends(client: TestClient, access: Access) -> None:
    headers = {"Authorization": f"Bearer {secret(1)}"}
    async with client.get("/api/v1/events", headers=headers) as response:
        assert (await response.content.readline()).startswith(b"event: snapshot")
        access.put(record("eye", 1, "viewer", revoked_at=2.0))
        await response.content.read()  # to its end
    assert access.num_leases == 0


# ---- agents


def labelled(**labels: str) -> Hello:
    return replace(hello(), labels=labels)


async def join(client: TestClient, said: Hello) -> ClientWebSocketResponse:
    headers = {"Authorization": f"Bearer {secret(2)}"}
    socket = await client.ws_connect("/api/v1/agent-socket", headers=headers)
    await say(socket, said)
    return socket


async def say(socket: ClientWebSocketResponse, message: FromAgent) -> None:
    await socket.send_str(encode_from_agent(message).decode())


async def next_of(socket: ClientWebSocketResponse) -> object:
    return decode_from_balancer((await socket.receive(timeout=HANGS)).data)


async def close_reason(socket: ClientWebSocketResponse) -> str:
    message = await socket.receive(timeout=HANGS)
    assert message.type is WSMsgType.CLOSE
    return str(message.extra)


async def test_a_revoked_agents_link_ends(
    client: TestClient, access: Access, runtime: FleetRuntime
) -> None:
    socket = await join(client, hello())
    assert isinstance(await next_of(socket), Welcome)
    assert len(runtime.views.view(0).agents) == 1
    access.put(record("rack", 2, "agent", revoked_at=2.0))
    assert len(runtime.views.view(0).agents) == 0
    assert await close_reason(socket) == "the key 'rack' was revoked"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (labelled(gpu="no"), "does not allow the label 'gpu=no'"),
        (labelled(zone="a"), "does not allow the label 'zone=a'"),
        (hello(model=None), None),
        (labelled(gpu="yes"), None),
    ],
)
async def test_a_hello_beyond_its_key_is_rejected(
    client: TestClient, said: Hello, reason: str | None
) -> None:
    socket = await join(client, said)
    answer = await next_of(socket)
    if reason is None:
        assert isinstance(answer, Welcome)
    else:
        assert isinstance(answer, Reject) and reason in answer.reason and not answer.retry


async def test_a_model_beyond_its_key_is_refused_later_too(client: TestClient) -> None:
    socket = await join(client, hello())
    assert isinstance(await next_of(socket), Welcome)
    await say(socket, Status(slots=1, accepting=True, model=model_info("other")))
    assert "does not allow the model 'other'" in await close_reason(socket)
