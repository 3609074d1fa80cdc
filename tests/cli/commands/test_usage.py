import json
from typing import Any

import pytest

from arriero.cli.commands.usage import main
from tests.client.fakes import FakeServer, says

COUNTS: dict[str, Any] = {
    "requests": 1200,
    "errors": 3,
    "prompt_tokens": 5000,
    "cached_tokens": 400,
    "completion_tokens": 30,
}
ROWS = [{"caller": "alice", "model": "m", **COUNTS}, {"caller": "bob", "model": "", **COUNTS}]
USAGE = {
    "since": "2026-01-01",
    "until": "2026-01-30",
    "by": ["caller", "model"],
    "usage": ROWS,
    "total": {**COUNTS, "requests": 2400},
}


def test_a_table_with_a_total(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says(USAGE))
    assert main(["--by", "caller,model", "--until", "2026-01-30"]) == 0
    heading, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["caller", "model", "requests", "errors", "prompt", "cached", "answers"]
    assert rows == [
        ["alice", "m", "1,200", "3", "5,000", "400", "30"],
        ["bob", "-", "1,200", "3", "5,000", "400", "30"],
        ["total", "2,400", "3", "5,000", "400", "30"],
    ]
    path = "/api/v1/usage?since=30d&by=caller%2Cmodel&until=2026-01-30"
    assert balancer.seen[-1][1].replace(",", "%2C") == path


def test_an_authority_that_cannot_be_used_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tls-ca", "/nowhere/ca.pem"]) == 2
    assert "--tls-ca" in capsys.readouterr().err


def test_for_programs(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says(USAGE), says(USAGE))
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == USAGE
    assert main(["--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "caller,model,requests,errors,prompt_tokens,cached_tokens,completion_tokens",
        "alice,m,1200,3,5000,400,30",
        "bob,,1200,3,5000,400,30",
    ]


def test_nothing_yet(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({**USAGE, "usage": []}))
    assert main([]) == 0
    assert "nothing was used from 2026-01-01 to 2026-01-30" in capsys.readouterr().out
