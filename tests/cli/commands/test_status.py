import json

import pytest

from arriero.cli.commands.status import main
from tests.cli.commands.answers import AGENT, SNAPSHOT, event
from tests.client.fakes import FakeServer, writes

RATES = event("throughput", {"tokens_per_second": 20.5, "agents": {"id-1": 20.5}})


def test_once(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(writes(event("snapshot", SNAPSHOT), RATES))
    assert main(["--once"]) == 0
    out = capsys.readouterr().out
    assert "1 agent · 1 of 4 slots busy · 3 waiting · 20.5 tok/s" in out
    [row] = [each for each in out.splitlines() if each.startswith("box ")]
    assert row.split() == ["box", "ready", "1/4", "20.5", "m", "1", "m", "1", "s"]
    assert "box: the disk is full → make room" in out


def test_agents_of_one_name(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    agents = [AGENT, AGENT | {"id": "id-2"}]
    balancer.will(writes(event("snapshot", SNAPSHOT | {"agents": agents}), RATES))
    assert main(["--once"]) == 0
    assert "2 agents are called box: give each a --name" in capsys.readouterr().out


def test_without_agents(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(writes(event("snapshot", SNAPSHOT | {"agents": []}), RATES))
    assert main(["--once"]) == 0
    assert "no agent is connected; see agent --help" in capsys.readouterr().out


def test_a_model_that_failed_is_not_called_ready(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [{"name": "long", "state": "failed"}, {"name": "second", "state": "ready"}]
    snapshot = SNAPSHOT | {"agents": [AGENT | {"models": models}]}
    balancer.will(writes(event("snapshot", snapshot), RATES))
    assert main(["--once"]) == 0
    assert "long (failed), second " in capsys.readouterr().out


def test_for_programs(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(writes(event("snapshot", SNAPSHOT)))
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == SNAPSHOT
