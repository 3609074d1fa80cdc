import json
from typing import Any

import pytest

from arriero.cli.commands.requests import main
from tests.client.fakes import FakeServer, says

LIVE: dict[str, Any] = {
    "id": "r1",
    "state": "streaming",
    "model": None,
    "caller": "alice",
    "position": None,
    "moves": 2,
    "num_tokens": 7,
    "waited_seconds": 0.5,
    "age_seconds": 70.0,
}
ENDED: dict[str, Any] = {
    "id": "r2",
    "code": "stop",
    "caller": "alice",
    "model": "m",
    "agent": "box",
    "prompt_tokens": 9,
    "cached_tokens": 4,
    "completion_tokens": 3,
    "moves": 1,
    "total_ms": 2000.0,
}


def test_those_that_run(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"requests": [LIVE]}), says({"requests": []}), says({"requests": [LIVE]}))
    assert main([]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row == ["r1", "streaming", "alice", "any", "7", "2", "0.5", "s", "1", "m", "10", "s"]
    assert main([]) == 0
    assert "nothing runs or waits" in capsys.readouterr().out
    assert main(["--json", "--model", "m", "--limit", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == [LIVE]
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=3&model=m"


def test_one_that_waits(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"requests": [LIVE | {"state": "queued", "position": 3}]}))
    assert main(["--caller", "alice"]) == 0
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=50&caller=alice"
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:5] == ["r1", "queued,", "number", "3", "alice"]
    balancer.will(says({"requests": [LIVE | {"priority_class": "batch"}]}))
    assert main([]) == 0
    assert "streaming, batch" in capsys.readouterr().out


def test_those_that_ended(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"requests": [ENDED]}))
    assert main(["--ended"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row == ["r2", "stop", "alice", "m", "box", "9", "4", "3", "1", "2.0", "s"]
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=50&state=ended"
    balancer.will(says({"requests": [ENDED | {"balancer": "east"}]}), says({"requests": []}))
    assert main(["--ended"]) == 0
    assert "stop, at east" in capsys.readouterr().out
    assert main(["--ended", "--caller", "alice"]) == 0
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=50&state=ended&caller=alice"


def test_cancel(balancer: FakeServer) -> None:
    balancer.will(says({}))
    assert main(["cancel"]) == 2
    assert main(["cancel", "r1"]) == 0
    assert balancer.seen == [("DELETE", "/api/v1/requests/r1", b"")]
