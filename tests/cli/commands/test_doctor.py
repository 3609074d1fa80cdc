import json
from importlib.metadata import version

import pytest

from arriero.cli.commands.doctor import main
from tests.cli.commands.answers import AGENT, READY
from tests.client.fakes import FakeServer, says


def test_a_sound_fleet(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    agent = AGENT | {"issues": [], "version": version("arriero")}
    balancer.will(says(READY), says({}), says({"agents": [agent]}), says({"issues": []}))
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "✓ the clock agrees with the balancer's" in out
    assert "✓ 1 agent, 0 of 4 slots busy" in out


def test_what_is_wrong(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    late = "Thu, 01 Jan 2026 00:00:00 GMT"
    away = {"code": "store_away", "message": "the store is away: gone", "hint": "move it back"}
    about = {"version": "1", "issues": [away]}
    balancer.will(says(READY), says({}, Date=late), says({"agents": [AGENT]}), says(about))
    assert main(["--json"]) == 1
    findings = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert findings["box: the disk is full"]["advice"] == "make room"
    assert findings["the balancer: the store is away: gone"]["advice"] == "move it back"
    [clock] = [each for what, each in findings.items() if "clock" in what]
    assert clock["verdict"] == "warning"


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "http://127.0.0.1:9"
    assert main(["--url", nowhere, "--management", nowhere]) == 1
    out = capsys.readouterr().out
    assert out.count("cannot connect to http://127.0.0.1:9") == 2
    assert "start it with: balancer" in out
