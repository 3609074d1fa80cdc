"""What operators see of clients' faulty requests."""

import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request

from arriero.balancer.api.app import inference_app
from arriero.balancer.api.native.web_socket import MAX_LIVE_REQUESTS
from arriero.balancer.api.transport.callers import LONGEST_USER_AGENT
from arriero.balancer.api.transport.fault_reports import FaultReports, client_of
from tests.balancer.api.fake_runtime import FakeFleetRuntime
from tests.balancer.fleet.recording import ManualClock
from tests.waiting import HANGS


class Counts:
    def __init__(self) -> None:
        self.ignored: list[tuple[str, str]] = []
        self.refusals: list[tuple[str, str]] = []

    def refused(self, route: str, code: str) -> None:
        self.refusals.append((route, code))

    def field_ignored(self, route: str, field: str) -> None:
        self.ignored.append((route, field))


def test_a_notice_a_minute_for_each_field_and_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts, clock = Counts(), ManualClock()
    reports = FaultReports(counts, clock=clock)
    codex = make_mocked_request("POST", "/x", headers={"User-Agent": "codex/1"})
    other = make_mocked_request("POST", "/x", headers={"User-Agent": "other/1"})
    for request in (codex, codex, other):
        reports.ignored(request, ["user", "colour"], ["user", "other"])
    clock.now += 61
    reports.ignored(codex, ["user"], ["user"])
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(">: ")[2] for line in lines] == [
        "ignored the fields user, colour, sent by None 'codex/1'",
        "ignored the fields user, colour, sent by None 'other/1'",
        "ignored the fields user, sent by None 'codex/1'",
    ]
    assert len(counts.ignored) == 7
    assert reports.num_clients == 1


def test_a_user_agent_stays_on_its_line() -> None:
    request = make_mocked_request("GET", "/", headers={"User-Agent": "a\tb\x7f" * 1000})
    assert len(client_of(request)) < 5 * LONGEST_USER_AGENT
    assert "\t" not in client_of(request)


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def client(counts: Counts) -> AsyncIterator[TestClient]:
    app = inference_app(FakeFleetRuntime(), reports=FaultReports(counts))
    async with TestClient(TestServer(app), headers={"User-Agent": "codex/1"}) as client:
        yield client


async def test_every_refusal_is_counted(client: TestClient, counts: Counts) -> None:
    chat = "/v1/chat/completions"
    await client.post(chat, json={"messages": [], "n": 1})
    await client.post("/v1/messages", data=b"{", headers={"Content-Type": "application/json"})
    await client.post("/api/v1/generate", json={"prompt": "a", "colour": 1})
    await client.get(chat)
    await client.get("/nothing")
    await client.get("/health", headers={"Host": "evil.example"})
    assert counts.refusals == [
        (chat, "invalid_request"),
        ("/v1/messages", "invalid_request"),
        ("/api/v1/generate", "invalid_request"),
        ("other", "method_not_allowed"),
        ("other", "not_found"),
        ("/health", "forbidden_host"),
    ]


async def test_refusals_after_parsing_are_counted(client: TestClient, counts: Counts) -> None:
    responses = "/v1/responses"
    await client.post(responses, json={"input": "a", "previous_response_id": "resp_none"})
    await client.post(responses, json={})
    await client.post(f"{responses}/input_tokens", json={"previous_response_id": "resp_none"})
    await client.get(f"{responses}/resp_none")
    await client.get(f"{responses}/resp_none?stream=true")
    await client.delete(f"{responses}/resp_none")
    await client.get(f"{responses}/resp_none/input_items")
    await client.post(f"{responses}/resp_none/cancel")
    assert counts.refusals == [
        (responses, "not_found"),
        (responses, "invalid_request"),
        (f"{responses}/input_tokens", "not_found"),
        (f"{responses}/{{id}}", "not_found"),
        (f"{responses}/{{id}}", "not_found"),
        (f"{responses}/{{id}}", "not_found"),
        (f"{responses}/{{id}}/input_items", "not_found"),
        (f"{responses}/{{id}}/cancel", "not_found"),
    ]


async def test_refusals_are_logged_once_a_minute(
    client: TestClient, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        await client.post("/v1/completions", json={"prompt": "a", "n": 0})
    lines = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert lines == [
        "/v1/completions: the request was refused with "
        "invalid_request at 'n', sent by 127.0.0.1 'codex/1'"
    ]
    assert len(counts.refusals) == 3


async def test_refusals_over_a_socket(client: TestClient, counts: Counts) -> None:
    async with client.ws_connect("/api/v1/socket") as socket:
        await socket.send_str("{")
        await socket.receive_json(timeout=HANGS)
        await socket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "generate", "params": {"x": 1}}
        )
        await socket.receive_json(timeout=HANGS)
        await socket.send_json({"jsonrpc": "2.0", "id": 2, "method": "cancel", "params": {"x": 1}})
        await socket.receive_json(timeout=HANGS)
        batch = {"requests": [{"prompt": "a"}] * 256}
        for number in range(MAX_LIVE_REQUESTS // 256 + 1):
            await socket.send_json(
                {"jsonrpc": "2.0", "id": f"b{number}", "method": "generate_batch", "params": batch}
            )
        answer = await socket.receive_json(timeout=HANGS)
    codes = ["invalid_request"] * 3 + ["rate_limited"]
    assert counts.refusals == [("/api/v1/socket", code) for code in codes], answer
