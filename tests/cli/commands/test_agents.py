import json

import pytest

from arriero.cli.arguments import UsageError
from arriero.cli.commands.agents import agent_named, main
from tests.cli.commands.answers import AGENT
from tests.client.fakes import FakeServer, says, writes

HOSTS = [
    {"name": "box", "state": "here", "last_seen": 1.7e9, "labels": {}},
    {"name": "old", "state": "lost", "last_seen": 1.7e9, "labels": {"zone": "a"}},
]


def test_list(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"agents": [AGENT]}), says({"hosts": HOSTS}), says({"agents": [AGENT]}))
    assert main([]) == 0
    shown, gone = capsys.readouterr().out.split("not here")
    assert "box" in shown
    last = gone.splitlines()[-1].split()
    assert (last[:2], last[-2:]) == (["old", "lost"], ["ago", "zone=a"])
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [AGENT]


def test_list_says_what_lies_where(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def device(name: str, free: int | None, **models: int) -> dict[str, object]:
        held = [{"name": each, "bytes": size << 30} for each, size in models.items()]
        return {"name": name, "memory": {"total": 24 << 30, "free": free}, "models": held}

    devices = [device("CPU", 20 << 30, chat=1), device("CUDA0", None, chat=12, titles=4)]
    devices.append(device("CUDA1", 24 << 30))
    agents = [AGENT, AGENT | {"id": "id-2", "name": "large", "devices": devices}]
    balancer.will(says({"agents": agents}), says({"hosts": []}))
    assert main([]) == 0
    *_, header, host, gpu = capsys.readouterr().out.splitlines()
    assert header.split() == ["agent", "device", "memory", "free", "models"]
    assert " ".join(host.split()) == "large CPU 24.0 GiB 20.0 GiB chat 1.0 GiB"
    assert " ".join(gpu.split()) == "large CUDA0 24.0 GiB - chat 12.0 GiB, titles 4.0 GiB"


@pytest.mark.parametrize(
    ("argv", "path", "body"),
    [
        (["drain", "box"], "drain", b"{}"),
        (["drain", "id-1", "--deadline", "5s"], "drain", b'{"deadline": "5s"}'),
        (["resume", "box"], "resume", b"{}"),
        (["reload", "box"], "reload", b"{}"),
    ],
)
def test_actions(
    balancer: FakeServer,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    path: str,
    body: bytes,
) -> None:
    balancer.will(says({"agents": [AGENT]}), says({}), says(AGENT | {"state": "draining"}))
    assert main(argv) == 0
    assert balancer.seen[1] == ("POST", f"/api/v1/agents/id-1/{path}", body)
    said = capsys.readouterr().out
    assert said == ("box: draining\n" if path != "reload" else RELOADS)


LINE = {"number": 7, "at": 1.7e9, "level": "warning", "text": "the engine process ended"}


def test_log(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(*[says({"agents": [AGENT]}), says({"lines": [LINE], "after": 7})] * 2)
    assert main(["log", "box"]) == 0
    assert capsys.readouterr().out.split("  ")[1:] == ["warning", "the engine process ended\n"]
    assert balancer.seen[1][1] == "/api/v1/agents/id-1/log"
    assert main(["log", "box", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == LINE


def test_log_follows(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    event = f"id: 7\nevent: lines\ndata: {json.dumps({'lines': [LINE], 'after': 7})}\n\n"
    gone = says({"error": {"code": "not_found", "message": "no such agent"}}, status=404)
    balancer.will(says({"agents": [AGENT]}), writes(event.encode()), gone)
    assert main(["log", "box", "--follow", "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out) == LINE
    assert "no such agent" in shown.err
    assert balancer.headers[2]["Last-Event-ID"] == "7"


RELOADS = "box finishes its requests, then reloads its model\n"


def test_which(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(*[says({"agents": [AGENT]})] * 2)
    assert main(["drain"]) == 2
    assert main(["drain", "other"]) == 2
    assert "connected: box" in capsys.readouterr().err
    assert {method for method, *_ in balancer.seen} == {"GET"}


AGENTS = [{"id": "1", "name": "box"}, {"id": "2", "name": "twin"}, {"id": "3", "name": "twin"}]


def test_by_name_or_id() -> None:
    assert agent_named(AGENTS, "box") == agent_named(AGENTS, "1") == AGENTS[0]
    assert agent_named(AGENTS, "3") == AGENTS[2]


@pytest.mark.parametrize(
    ("word", "said"), [("twin", "give the id of one: 2, 3"), ("x", "connected: box, twin")]
)
def test_none_and_several(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        agent_named(AGENTS, word)


def test_a_host_is_forgotten(balancer: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    balancer.will(says({"agents": []}), says({"name": "old"}))
    assert main(["forget", "old"]) == 0
    assert balancer.seen[1][:2] == ("DELETE", "/api/v1/hosts/old")
    assert capsys.readouterr().out == "old is forgotten\n"
