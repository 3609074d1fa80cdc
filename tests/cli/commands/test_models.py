import json

import pytest

from arriero.cli.commands.models import main
from tests.client.fakes import FakeServer, says

MODELS = [
    {"name": "m", "status": "loading", "progress": 0.5, "agents": ["a"], "issues": []},
    {
        "name": "n",
        "status": "failed",
        "progress": None,
        "agents": [],
        "issues": [{"code": "not_found", "message": "no such file", "hint": "check the path"}],
    },
]


def test_models(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(*[says({"models": MODELS})] * 2, says({"models": []}))
    assert main([]) == 0
    rows = [each.split() for each in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0] == ["m", "loading", "50%", "1"]
    assert rows[1] == ["n", "failed", "0", *["no", "such", "file", "→", "check", "the", "path"]]
    assert main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == MODELS
    assert main([]) == 0
    assert "arriero apply" in capsys.readouterr().out
