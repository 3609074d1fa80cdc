import json
from importlib.metadata import version

import pytest

from arriero.cli.commands.doctor import main
from tests.cli.commands.answers import AGENT, READY
from tests.client.fakes import FakeServer, says

CALM = {"lines": [{"ended": {"stop": [3, 1]}}]}


def test_a_sound_fleet(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    agent = AGENT | {"issues": [], "version": version("arriero")}
    balancer.will(says(READY), says({}), says({"agents": [agent]}), says({"issues": []}))
    balancer.will(says({"hosts": []}), says({"models": []}), says(CALM))
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "✓ the clock agrees with the balancer's" in out
    assert "✓ 1 agent, 0 of 4 slots busy" in out


def test_what_is_wrong(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    late = "Thu, 01 Jan 2026 00:00:00 GMT"
    away = {"code": "store_away", "message": "the store is away: gone", "hint": "move it back"}
    about = {"version": "1", "issues": [away]}
    balancer.will(says(READY), says({}, Date=late), says({"agents": [AGENT]}), says(about))
    lost = {"name": "spare", "state": "lost", "last_seen": 1.7e9}
    lack = {"message": "no agent takes models", "hint": "start an agent without --model"}
    second = {"name": "second", "status": "waiting", "issues": [lack], "waiting": 0}
    balancer.will(says({"hosts": [lost]}), says({"models": [second]}), says(CALM))
    assert main(["--json"]) == 1
    findings = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert findings["box: the disk is full"]["advice"] == "make room"
    assert findings["the balancer: the store is away: gone"]["advice"] == "move it back"
    assert findings["no agent serves second: no agent takes models"]["verdict"] == "bad"
    assert any(what.startswith("spare is lost: ") for what in findings)
    [clock] = [each for what, each in findings.items() if "clock" in what]
    assert clock["verdict"] == "warning"


def test_without_an_agent_one_sentence_says_what_to_do(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says(READY), says({}), says({"agents": []}), says({"issues": []}))
    balancer.will(says({"hosts": []}), says(CALM))
    assert main(["--json"]) == 1
    [bad] = [each for each in json.loads(capsys.readouterr().out) if each["verdict"] == "bad"]
    assert bad["what"] == "no agent is connected"
    assert [path for _, path, _ in balancer.seen if path.endswith("/models")] == []


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "http://127.0.0.1:9"
    assert main(["--url", nowhere, "--management", nowhere]) == 1
    out = capsys.readouterr().out
    assert out.count("cannot connect to http://127.0.0.1:9") == 2
    assert out.count("start the balancer, or give its address with --") == 2


def test_a_key_that_is_not_taken(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    error = {"error": {"code": "unauthorized", "message": "the key 'admin' was revoked"}}
    balancer.will(says(READY), says({}), says(error, status=401))
    assert main(["--json"]) == 1
    last = json.loads(capsys.readouterr().out)[-1]
    assert last["what"] == "the key 'admin' was revoked (unauthorized)"
    assert last["advice"].startswith("give a valid key with --key-file")
