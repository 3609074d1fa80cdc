"""Operators see refusals at each door, by their reason."""

import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from arriero.balancer.access.access import Access
from arriero.balancer.access.refusals import GOES_ON, Door
from arriero.balancer.api.app import inference_app
from arriero.balancer.api.transport.connections import Connections
from arriero.balancer.api.transport.doors import PORT_DOORS, Doors
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.events import EventHub
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from tests.balancer.access.builders import record, secret
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.management.apps import management_app
from tests.balancer.management.conftest import desired_state, hub, metrics, runtime

__all__ = ["desired_state", "hub", "metrics", "runtime"]

WRONG = secret(99)


class Watched(Doors):
    """Remembers what was counted, and the entries of the diary."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, str]] = []
        self.notes: list[tuple[str, str]] = []
        super().__init__(self, lambda who, what: self.notes.append((who, what)), lambda: 0.0)

    def turned_away(self, door: str, kind: str) -> None:
        self.counted.append((door, kind))

    def at(self, app: web.Application, door: Door) -> web.Application:
        app[PORT_DOORS] = (self, door)
        return app


@pytest.fixture
def doors() -> Watched:
    return Watched()


@pytest.fixture
def access() -> Access:
    return Access(
        [
            record("app", 1),
            record("eye", 2, "viewer"),
            record("gone", 3, revoked_at=1.0),
            record("rack", 4, "agent"),
        ]
    )


@pytest.fixture
async def clients(
    doors: Watched,
    access: Access,
    runtime: FleetRuntime,
    hub: EventHub,
    metrics: Metrics,
    desired_state: DesiredStateService,
) -> AsyncIterator[dict[str, TestClient]]:
    inference = inference_app(FakeFleetRuntime(), access=access)
    management = management_app(runtime, hub, metrics, desired_state=desired_state, access=access)
    async with (
        TestClient(TestServer(doors.at(inference, "inference"))) as first,
        TestClient(TestServer(doors.at(management, "management"))) as second,
    ):
        yield {"inference": first, "management": second}


def shown(number: int) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(number)}"}


@pytest.mark.parametrize(
    ("port", "method", "path", "headers", "counted"),
    [
        ("inference", "GET", "/v1/models", {}, ("inference", "no_key")),
        ("inference", "GET", "/v1/models", shown(99), ("inference", "unknown_key")),
        ("inference", "GET", "/v1/models", shown(3), ("inference", "ended_key")),
        ("inference", "POST", "/v1/completions", shown(2), ("inference", "role")),
        ("inference", "GET", f"/v1/models?key={WRONG}", {}, ("inference", "key_in_url")),
        ("inference", "GET", "/health", {"Host": "evil.example"}, ("inference", "host")),
        (
            "inference",
            "GET",
            "/health",
            {"Origin": "https://evil.example"},
            ("inference", "origin"),
        ),
        ("management", "GET", "/api/v1/agents", shown(99), ("management", "unknown_key")),
        ("management", "GET", "/api/v1/agent-socket", shown(99), ("agents", "unknown_key")),
        ("management", "GET", "/api/v1/agent-socket", shown(2), ("agents", "role")),
        (
            "management",
            "GET",
            "/api/v1/agents",
            {"Cookie": f"arriero_session={'x' * 43}"},
            ("management", "ended_session"),
        ),
    ],
)
async def test_each_refusal_is_counted_by_door_and_kind(
    clients: dict[str, TestClient],
    doors: Watched,
    caplog: pytest.LogCaptureFixture,
    port: str,
    method: str,
    path: str,
    headers: dict[str, str],
    counted: tuple[str, str],
) -> None:
    caplog.set_level(logging.WARNING)
    answer = await clients[port].request(method, path, headers=headers)
    assert answer.status in (401, 403)
    assert doors.counted == [counted]
    lines = [each for each in caplog.messages if each.startswith("refused at the ")]
    assert len(lines) == 1 and WRONG not in caplog.text


async def test_wrong_log_ins_that_go_on_are_in_the_diary_once(
    clients: dict[str, TestClient], doors: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for key in (WRONG, secret(1)):
        for _ in range(GOES_ON):
            answer = await clients["management"].post("/api/v1/session", json={"key": key})
            assert answer.status in (401, 403)
    assert doors.counted == [("log_in", "unknown_key")] * GOES_ON + [("log_in", "role")] * GOES_ON
    [(who, what)] = doors.notes
    assert who == "127.0.0.1"
    assert what == (
        "refused 10 times in a minute at the log-in of the dashboard, the last time: "
        "the access key is not known here"
    )
    assert WRONG not in caplog.text
    assert len([each for each in caplog.messages if each.startswith("refused at the ")]) == 2


def test_a_tls_handshake_that_fails_is_one_of_them(
    doors: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    connections = Connections(doors=doors)
    for reason in ("CERTIFICATE_VERIFY_FAILED", "the client does not speak TLS"):
        connections.handshake_failed("10.0.0.1", reason)
    assert doors.counted == [("tls", "certificate"), ("tls", "handshake")]
    assert "a TLS handshake failed: CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_what_is_no_matter_of_the_door_is_not_counted(
    clients: dict[str, TestClient], doors: Watched
) -> None:
    assert (await clients["inference"].get("/v1/models/no", headers=shown(1))).status == 404
    answer = await clients["management"].post("/api/v1/session", json={"key": ""})
    assert answer.status == 400
    assert doors.counted == []
