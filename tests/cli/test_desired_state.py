import argparse
import sys
from io import StringIO
from typing import Any

import pytest

from arriero.cli.arguments import UsageError
from arriero.cli.desired_state import change, changes
from arriero.client import Client
from tests.client.fakes import FakeServer, says, serving

BEFORE: dict[str, Any] = {
    "models": [
        {
            "name": "m",
            "source": "file:///m",
            "slots": 4,
            "aliases": [],
            "agents": {"labels": {}, "replicas": "all"},
            "preload": True,
        }
    ]
}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([{"name": "m", "source": "file:///m", "slots": 4}], [(" ", "m")]),
        ([{"name": "m", "source": "file:///m", "slots": 8}], [("~", "m: slots 4 -> 8")]),
        ([{"name": "m", "source": "file:///m"}], [("~", "m: slots 4 -> default")]),
        ([], [("-", "m")]),
        (
            [
                {"name": "n", "source": "file:///n"},
                {"name": "m", "source": "file:///m", "slots": 4},
            ],
            [("+", "n from file:///n"), (" ", "m")],
        ),
        (
            [{"name": "n", "source": "file:///n"}],
            [("+", "n from file:///n"), ("-", "m")],
        ),
    ],
)
def test_models_that_come_go_and_change(
    new: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    assert list(changes(BEFORE, {"models": new})) == expected


def test_what_is_inside_is_named_by_itself() -> None:
    old = {"name": "m", "agents": {"labels": {}, "replicas": 1}, "engine": {"gpu_layers": 3}}
    new = {"name": "m", "agents": {"labels": {"gpu": "yes"}, "replicas": "all"}, "engine": {}}
    assert list(changes({"models": [old]}, {"models": [new]})) == [
        ("~", 'm: labels {} -> {"gpu": "yes"}, replicas 1 -> all, engine.gpu_layers 3 -> none')
    ]


def test_long_values_are_shown_whole() -> None:
    [(sign, text)] = changes(
        BEFORE, {"models": [BEFORE["models"][0] | {"chat_template": "x" * 999}]}
    )
    assert sign == "~"
    assert text.endswith("x" * 999)


def test_another_order_is_a_change() -> None:
    one, two = ({"name": name, "source": "file:///x"} for name in ("one", "two"))
    lines = list(changes({"models": [one, two]}, {"models": [two, one]}))
    assert lines == [
        (" ", "two"),
        (" ", "one"),
        ("~", "the order, in which models get agents: two, one"),
    ]


STATE = "/api/v1/desired-state"
OLD = {"models": [{"name": "m", "source": "file:///m.gguf"}]}
NEW = {"models": [{"name": "n", "source": "file:///n.gguf"}]}


def plan(desired: dict[str, Any], **more: Any) -> Any:
    return says({"agents": [], "desired": desired, **more})


def flags(**given: bool) -> argparse.Namespace:
    none = dict.fromkeys(("json", "dry_run", "yes", "wait"), False)
    return argparse.Namespace(**none | given)


async def changed(server: FakeServer, desired: dict[str, Any], **given: bool) -> list[str]:
    """What was called."""
    async with Client(server.url, management=server.url) as client:
        await change(client.management, lambda _before: desired, flags(**given))
    return [f"{method} {path}" for method, path, _ in server.seen]


async def test_the_same_again_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as server:
        server.will(says(OLD, ETag='"7"'), plan(OLD), says(OLD))
        written = {"models": [{**OLD["models"][0], "idle_timeout": "15m"}]}
        await changed(server, written)
    assert capsys.readouterr().out == "nothing to change\n"


async def test_models_are_removed_only_when_somebody_agrees(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO())
    async with serving() as server:
        server.will(says(OLD, ETag='"7"'), plan(NEW))
        with pytest.raises(UsageError, match="--yes: is needed to remove m"):
            await changed(server, NEW)
        assert "- m" in capsys.readouterr().out
    for answer, calls in (("n\n", 2), ("\n", 2), ("y\n", 3)):
        terminal = StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        async with serving() as server:
            server.will(says(OLD, ETag='"7"'), plan(NEW), says(NEW))
            assert len(await changed(server, NEW)) == calls
        out = capsys.readouterr().out
        assert "Remove m? [y/N]" in out
        assert ("nothing has changed" in out) is (calls == 2)
    async with serving() as server:
        server.will(says(OLD, ETag='"7"'), plan(NEW), says(NEW))
        assert (await changed(server, NEW, yes=True))[2] == f"PUT {STATE}"


async def test_it_warns_of_what_would_be_served_by_nobody_and_not_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    issue = {"code": "no_agent", "message": "no agent takes models", "hint": "start an agent"}
    lacking = [{"name": "n", "issues": [issue]}]
    none: dict[str, Any] = {"models": []}
    async with serving() as server:
        about = says({"is_lasting": False})
        server.will(says(none, ETag='"0"'), plan(NEW, lacking=lacking), says(NEW), about)
        await changed(server, NEW)
        out = capsys.readouterr().out
        assert "! n: no agent takes models; start an agent\n" in out
        assert "! the balancer stores nothing (--state memory://)" in out
        assert max(map(len, out.splitlines())) > 100, "nothing is wrapped where it is piped"
