import json

import pytest

from arriero.cli.commands.diary import main
from tests.client.fakes import FakeServer, says, writes

ENTRY = {
    "number": 1,
    "at": 1.7e9,
    "kind": "host_went",
    "subject": "box",
    "message": "it went: lost",
}
CHANGE = {**ENTRY, "number": 2, "kind": "models_changed", "subject": "desired models"}
CHANGE |= {"message": "+ [qwen]", "by": "ana"}


def test_what_happened(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"entries": [CHANGE, ENTRY]}), says({"entries": [CHANGE]}))
    balancer.will(says({"entries": []}))
    assert main(["--since", "12h", "--limit", "2"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("  host went: box: it went: lost")
    assert last.endswith("  models changed: desired models: + [qwen], by ana")
    assert balancer.seen[0][1] == "/api/v1/diary?limit=2&since=12h"
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [CHANGE]
    assert main([]) == 0
    assert "nothing has happened yet" in capsys.readouterr().out


def test_what_happens(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    event = f"id: 1\nevent: entry\ndata: {json.dumps(ENTRY)}\n\nevent: alive\ndata: {{}}\n\n"
    balancer.will(
        writes(event.encode()), says({"error": {"code": "x", "message": "no"}}, status=400)
    )
    assert main(["--follow", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == ENTRY
    assert balancer.headers[1]["Last-Event-ID"] == "1"
