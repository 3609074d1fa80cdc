"""What operators see of clients' faulty requests."""

import logging

import pytest
from aiohttp.test_utils import make_mocked_request

from arriero.balancer.api.transport.callers import LONGEST_USER_AGENT
from arriero.balancer.api.transport.door_reports import DoorReports, client_of
from tests.balancer.fleet.recording import ManualClock


class Counts:
    def __init__(self) -> None:
        self.ignored: list[tuple[str, str]] = []

    def field_ignored(self, door: str, field: str) -> None:
        self.ignored.append((door, field))


def test_a_notice_a_minute_for_each_field_and_client(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts, clock = Counts(), ManualClock()
    reports = DoorReports(counts, clock=clock)
    codex = make_mocked_request("POST", "/x", headers={"User-Agent": "codex/1"})
    other = make_mocked_request("POST", "/x", headers={"User-Agent": "other/1"})
    for request in (codex, codex, other):
        reports.ignored(request, ["user", "colour"], ["user", "other"])
    clock.now += 61
    reports.ignored(codex, ["user"], ["user"])
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rpartition(">: ")[2] for line in lines] == [
        "ignored user, colour, sent by None 'codex/1'",
        "ignored user, colour, sent by None 'other/1'",
        "ignored user, sent by None 'codex/1'",
    ]
    assert len(counts.ignored) == 7
    assert reports.num_clients == 1


def test_a_user_agent_stays_on_its_line() -> None:
    request = make_mocked_request("GET", "/", headers={"User-Agent": "a\tb\x7f" * 1000})
    assert len(client_of(request)) < 5 * LONGEST_USER_AGENT
    assert "\t" not in client_of(request)
