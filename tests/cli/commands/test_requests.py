import json
from datetime import datetime
from typing import Any

import pytest

from arriero.cli.commands.requests import main
from tests.client.fakes import FakeServer, says

LIVE: dict[str, Any] = {
    "id": "r1",
    "state": "streaming",
    "model": None,
    "agent": "a1",
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
    "ended_at": datetime(2023, 11, 14, 22, 13).timestamp(),
}


AGENTS = {"agents": [{"id": "a1", "name": "box"}]}
ID = "9f86d081884c7d659a2feaa0c55ad015"


def test_those_that_run(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"requests": [LIVE]}), says(AGENTS))
    balancer.will(says({"requests": []}), says({"requests": [LIVE]}))
    assert main([]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:5] == ["r1", "streaming", "alice", "any", "box"]
    assert row[5:] == ["7", "2", "0.5", "s", "1", "m", "10", "s"]
    assert main([]) == 0
    assert "no requests run or wait" in capsys.readouterr().out
    assert main(["--json", "--model", "m", "--limit", "3"]) == 0
    assert json.loads(capsys.readouterr().out) == [LIVE]
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=3&model=m"


def test_one_that_waits(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    waits = LIVE | {"state": "queued", "position": 3, "agent": None}
    balancer.will(says({"requests": [waits]}))
    assert main(["--caller", "alice"]) == 0
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=50&caller=alice"
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:5] == ["r1", "queued,", "number", "3", "alice"]
    balancer.will(says({"requests": [LIVE | {"priority_class": "batch"}]}), says(AGENTS))
    assert main([]) == 0
    assert "streaming, batch" in capsys.readouterr().out


def test_those_that_ended(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"requests": [ENDED]}))
    assert main(["--ended"]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:3] == ["r2", "11-14", "22:13"]
    assert row[3:] == ["stop", "alice", "m", "box", "9", "4", "3", "1", "2.0", "s"]
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=50&state=ended"
    balancer.will(says({"requests": []}))
    assert main(["--ended", "--caller", "alice"]) == 0
    assert balancer.seen[-1][1] == "/api/v1/requests?limit=50&state=ended&caller=alice"


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ("80", ["9f86d081", "anony…", "arrie…", "agent…", "1209", "3"]),
        (
            "140",
            [
                *("9f86d081884c7d659a2feaa0c55ad015", "anonymous", "arriero-demo", "agent-1"),
                *("1209", "1004", "3", "1"),
            ],
        ),
    ],
)
def test_those_that_ended_have_a_line_each(
    balancer: FakeServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
    names: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    named = {"caller": "anonymous", "model": "arriero-demo", "agent": "agent-1"}
    counts = {"prompt_tokens": 1209, "cached_tokens": 1004, "total_ms": 200_000.0}
    one = ENDED | named | counts | {"id": ID}
    of_two = [one | {"code": "agent_lost", "balancer": "vm/0"}, one]
    balancer.will(says({"requests": of_two}))
    assert main(["--ended"]) == 0
    _, lost, stopped = capsys.readouterr().out.splitlines()
    id, *others = names
    when, rest = ["11-14", "22:13"], [*others, "3", "m", "20", "s"]
    assert lost.split() == [id, *when, "agent_lost", "vm/0", *rest]
    assert stopped.split() == [id, *when, "stop", "-", *rest]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ("80", ["9f86d081", "streaming,", "at", "vm/0,", "batch", "ano…", "arr…", "box"]),
        (
            "140",
            [
                *("9f86d081884c7d659a2feaa0c55ad015", "streaming,", "at", "vm/0,", "batch"),
                *("anonymous", "arriero-demo", "box"),
            ],
        ),
    ],
)
def test_those_that_run_have_a_line_each(
    balancer: FakeServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: str,
    names: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    where = {"balancer": "vm/0", "priority_class": "batch", "waited_seconds": 192.0}
    one = LIVE | where | {"id": ID, "caller": "anonymous", "model": "arriero-demo"}
    balancer.will(says({"requests": [one]}), says(AGENTS))
    assert main([]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == [*names, "7", "2", "3", "m", "12", "s", "1", "m", "10", "s"]


def test_cancel(balancer: FakeServer) -> None:
    balancer.will(says({}))
    assert main(["cancel"]) == 2
    assert main(["cancel", ID]) == 0
    assert balancer.seen == [("DELETE", f"/api/v1/requests/{ID}", b"")]


def test_cancel_by_how_its_id_begins(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = says({"requests": [LIVE | {"id": ID}, LIVE | {"id": "9f86" + "0" * 28}, LIVE]})
    for given, deleted in {"9f86d": ID, "r1": "r1", "absent": "absent"}.items():
        balancer.will(listed, says({}))
        assert main(["cancel", given]) == 0
        assert balancer.seen[-1] == ("DELETE", f"/api/v1/requests/{deleted}", b"")
    balancer.will(listed)
    assert main(["cancel", "9f86"]) == 2
    assert "2 requests begin with 9f86" in capsys.readouterr().err


def test_one_that_runs(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"requests": [LIVE]}), says(AGENTS))
    assert main(["show", "r1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {words[0]: words[1].strip() for line in lines if (words := line.split(maxsplit=1))}
    assert (shown["agent"], shown["age"], shown["caller"]) == ("box", "1 m 10 s", "alice")
    assert "model" not in shown


def test_one_that_failed(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    failed = ENDED | {"code": "engine_failed", "error": "it broke\nbadly", "ended_at": 1.7e9}
    balancer.will(says({"requests": []}), says({"requests": [failed]}))
    assert main(["show", "r"]) == 0
    out = capsys.readouterr().out
    for words in ("how it ended", "engine_failed", "it broke", "took", "2.000 s", "2023-11-1"):
        assert words in out, out
    balancer.will(says({"requests": []}), says({"requests": [ENDED, ENDED | {"id": "r3"}]}))
    assert main(["show", "r"]) == 2
    balancer.will(says({"requests": []}), says({"requests": []}))
    assert main(["show", "x"]) == 2
    said = capsys.readouterr().err
    assert "2 requests begin with r" in said
    assert "no running, waiting or recent request begins with x" in said
    assert main(["show"]) == 2
