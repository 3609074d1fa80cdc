import json
from pathlib import Path

import pytest

from arriero.cli.commands.apply import main
from tests.cli.commands.answers import SNAPSHOT, event
from tests.client.fakes import FakeServer, says, writes

OLD = {"models": [{"name": "m", "source": "file:///m.gguf", "slots": 4}]}
TOML = """
[[models]]
name = "m"
source = "file:///m.gguf"
slots = 8
agents = {replicas = 2}
"""
PLAN = {"agents": [{"name": "box", "action": "reload", "model": "m", "why": "more slots"}]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "state.toml"
    file.write_text(TOML)
    return file


def test_it_says_what_changes_and_refers_to_it(
    balancer: FakeServer, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says(OLD, ETag='"7"'), says(PLAN), says({}))
    assert main([str(file)]) == 0
    out = capsys.readouterr().out
    assert "~ m: slots 4 -> 8, replicas none -> 2" in out
    assert "box: reload m (more slots)" in out
    paths = [(method, path) for method, path, _ in balancer.seen]
    state = "/api/v1/desired-state"
    assert paths == [("GET", state), ("PUT", f"{state}?dry_run=true"), ("PUT", state)]
    assert [each.get("If-Match") for each in balancer.headers] == [None, '"7"', '"7"']
    assert json.loads(balancer.seen[2][2])["models"][0]["slots"] == 8


def test_a_dry_run_changes_nothing(
    balancer: FakeServer, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says(OLD), says(PLAN))
    assert main([str(file), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == PLAN
    assert [path for _, path, _ in balancer.seen][1:] == ["/api/v1/desired-state?dry_run=true"]


BEAT = event("throughput", {"tokens_per_second": 0.0, "agents": {}})
GONE = {"code": "not_found", "message": "no such file", "hint": "check the path"}


@pytest.mark.parametrize(
    ("looks", "code"),
    [
        # The phase of the agent, the model's status and issues, once a second.
        ([("serving", "loaded", []), ("serving", "loaded", [])], 0),
        (
            [
                ("serving", "failed", [GONE]),  # as it was before the change
                ("fetching", "loading", []),
                ("serving", "loaded", []),
                ("serving", "loaded", []),
            ],
            0,
        ),
        ([("loading", "loaded", []), *[("serving", "loaded", [])] * 2], 0),
        ([("failed", "failed", [GONE])] * 2, 1),
        ([("failed", "loaded", [GONE])] * 2, 1),
        ([("waiting", "waiting", []), *[(None, "waiting", [GONE])] * 2], 1),
        ([(None, "unloaded", [])] * 2, 0),
    ],
)
def test_it_waits_until_agents_have_loaded_or_failed(
    balancer: FakeServer,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    looks: list[tuple[str | None, str, list[dict[str, str]]]],
    code: int,
) -> None:
    balancer.will(says(OLD), says(PLAN), says({}))
    balancer.will(writes(event("snapshot", SNAPSHOT), *[BEAT] * len(looks)))
    for phase, status, issues in looks:
        model = {"name": "m", "status": status, "issues": issues}
        work = phase and {"model": "m", "phase": phase}
        balancer.will(says({"models": [model]}), says({"agents": [{"work": work}]}))
    assert main([str(file), "--wait"]) == code
    assert balancer.answers == []
    *_, row = [line for line in capsys.readouterr().out.splitlines() if line.startswith("m ")]
    assert row.split()[:2] == ["m", looks[-1][1]]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "x = ", "a.toml: "),
        ("a.json", "{", "a.json: "),
        ("a.toml", "x = 1", "must have a list `models`"),
        ("a.json", "[]", "must have a list `models`"),
        ("none.toml", None, "cannot read"),
    ],
)
def test_wrong_files(
    balancer: FakeServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str | None,
    said: str,
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main([str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err
    assert balancer.seen == []
