"""Nothing that a balancer says steers the terminal: the screen, and all commands."""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from arriero.cli.screen import Screen
from tests.cli.commands import (
    test_agents,
    test_apply,
    test_diary,
    test_keys,
    test_models,
    test_requests,
    test_usage,
)
from tests.cli.commands.answers import AGENT, END, READY, SNAPSHOT, event, line, token
from tests.client.fakes import FakeServer, Handler, says, writes


def shown(*objects: object, **options: object) -> str:
    stream = io.StringIO()
    Screen(file=stream, width=200, **options).print(*objects)
    return stream.getvalue()


def test_a_string_is_one_line_of_plain_text() -> None:
    text = "[red]a[/] :smile: \x1b]0;title\x07\n2026-01-01 forged"
    assert shown(text) == "[red]a[/] :smile: \\u001b]0;title\\u0007\\n2026-01-01 forged\n"


def test_a_text_has_lines_and_nothing_else_that_steers() -> None:
    assert shown(Text("a\nb\x1b[2J\x9b")) == "a\nb\\u001b[2J\\u009b\n"


def test_cells_are_as_wide_as_what_is_shown() -> None:
    table = Table("\x9bname", box=None, pad_edge=False)
    table.add_column("next")
    table.add_row("\x1b[31m", "x\ny")
    lines = [line.split() for line in shown(table).splitlines()]
    assert lines == [["\\u009bname", "next"], ["\\u001b[31m", "x\\ny"]]


def test_its_own_styles_are_written() -> None:
    styled = shown(Text("a\x1b[0mb", style="red"), force_terminal=True, color_system="standard")
    assert styled == "\x1b[31ma\\u001b[0mb\x1b[0m\n"


# ---- all commands

MARK = "evil"
EVIL = (
    f"{MARK}\x1b]52;c;aGk=\x07\x1b]0;t\x1b\\\x9b31m\x9d0;t\x9c\x7f\r\b\u202e\u2066\u2028"
    "[red][link=http://x]y[/]:smile:\nforged"
)
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def hostile(value: Any) -> Any:
    """`value` with `EVIL` after each of its words."""
    match value:
        case dict():
            return {key: hostile(each) for key, each in value.items()}
        case list():
            return [hostile(each) for each in value]
        case str():
            return value + EVIL
    return value


def answers(*bodies: object) -> list[Handler]:
    return [says(hostile(body)) for body in bodies]


REFUSED = says({"error": {"code": "forbidden", "message": EVIL}}, status=403)
BOX = {
    **AGENT,
    "devices": [
        {"name": "CPU", "memory": {"total": 1, "free": None}, "models": [{"name": "m", "bytes": 1}]}
    ],
}
AGENTS = {"agents": [BOX]}
NAMED = hostile(BOX) | {"id": "id-1"}
ASKED_FOR = says({"agents": [NAMED]}), says({}), says(NAMED)
HOSTS = {"hosts": test_agents.HOSTS}
MODELS = {"models": test_models.MODELS}
LISTED = test_requests.LIVE, {"agents": [{"id": f"a1{EVIL}", "name": "box"}]}
EVENTS = [
    event("snapshot", hostile(SNAPSHOT)),
    event("throughput", {"tokens_per_second": 1.0, "agents": {}}),
]
WAITS = line(event="waiting", position=None, reason=EVIL, **{"for": "model"})
CALL = line(event="tool_call", call={"id": "c", "name": EVIL, "arguments": EVIL})
WARNING = line(event="warning", code="w", message=EVIL)
DONE = json.dumps(json.loads(END) | {"finish_reason": EVIL}).encode() + b"\n"
STREAM = writes(WAITS, WARNING, CALL, token(EVIL, "reasoning"), token(EVIL), DONE)
LACKING = {"lacking": [{"name": "m", "issues": [{"message": "no", "hint": "do"}]}]}
PLAN = hostile(test_apply.PLAN | LACKING)
OLD = test_apply.OLD["models"][0] | {"labels": {"a": EVIL}}
BATCH = {"error": {"code": "invalid_request", "message": EVIL}}

Run = tuple[Sequence[str], Sequence[Handler]]

ASKED: Mapping[str, Sequence[Run]] = {
    "agents": [
        ([], answers(AGENTS, HOSTS)),
        (["--json"], answers(AGENTS)),
        (["drain", "id-1"], ASKED_FOR),
        (["reload", "id-1"], ASKED_FOR),
        (["drain", "nobody"], answers(AGENTS)),
        (["forget", "old"], [REFUSED]),
    ],
    "apply": [
        (["FILE"], [says({"models": [OLD]}, ETag='"0"'), says(PLAN), says({}), says({})]),
        (["FILE", "--dry-run", "--json"], [says({"models": []}), says(PLAN)]),
    ],
    "batch": [(["INPUT", "OUTPUT"], [says(READY), says(BATCH, status=400)])],
    "bench": [
        (
            ["URL", "--concurrency", "1", "--requests", "1"],
            [*answers({"data": [{"id": "m"}]}), REFUSED],
        )
    ],
    "chat": [([], [STREAM, REFUSED])],
    "diary": [
        ([], answers({"entries": [test_diary.ENTRY, test_diary.CHANGE]})),
        (["--json"], answers({"entries": [test_diary.ENTRY]})),
        (["--follow"], [writes(event("entry", hostile(test_diary.CHANGE))), REFUSED]),
    ],
    "doctor": [
        (
            [],
            answers(READY, {}, AGENTS, {"issues": BOX["issues"]}, HOSTS, MODELS),
        ),
        (["--json"], [REFUSED, *answers(AGENTS, {"issues": []}, HOSTS, MODELS)]),
    ],
    "generate": [
        (["why?"], [STREAM]),
        (["why?", "--json"], answers(json.loads(END) | {"id": "r", "text": "yes"})),
        (["why?"], [REFUSED]),
    ],
    "keys": [
        ([], answers({"keys": [test_keys.KEY]})),
        (["create", "k", "--role", "admin"], answers(test_keys.KEY | {"key": "k"})),
        (["revoke", "k"], answers(test_keys.KEY)),
    ],
    "models": [
        ([], answers(MODELS)),
        (["fit", "hf://org/repo:Q4"], answers(test_models.FITS)),
        (["remove", "nothing"], answers({"models": [OLD]})),
        (["remove", f"m{EVIL}"], [*answers({"models": [OLD]}), says(PLAN), says({})]),
    ],
    "requests": [
        ([], answers({"requests": [LISTED[0]]}, LISTED[1])),
        (["--ended"], answers({"requests": [test_requests.ENDED | {"balancer": "b"}]})),
        (["show", "r1"], answers({"requests": [LISTED[0]]}, LISTED[1])),
    ],
    "status": [(["--once"], [writes(*EVENTS)]), (["--json"], [writes(*EVENTS)])],
    "usage": [
        (["--by", "caller,model"], [says(test_usage.USAGE | {"usage": hostile(test_usage.ROWS)})]),
        (["--csv"], [says(test_usage.USAGE | {"usage": hostile(test_usage.ROWS)})]),
    ],
}
LOCAL = {"agent", "balancer", "backup", "completion", "restore"}
"""Commands that ask no balancer, and the daemons."""

COMMANDS = {entry.name: entry for entry in entry_points(group="arriero.commands")}


def test_no_command_is_left_out() -> None:
    assert {*ASKED, *LOCAL} == {*COMMANDS}


@pytest.mark.parametrize(
    ("command", "run"),
    [
        pytest.param(command, run, id=f"{command}-{number}")
        for command, runs in ASKED.items()
        for number, run in enumerate(runs)
    ],
)
def test_no_word_steers_the_terminal(
    balancer: FakeServer,
    command: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "4000")
    monkeypatch.setattr("sys.stdout.isatty", lambda: command in ("chat", "generate"))
    monkeypatch.setattr("builtins.input", _typed("why?", "again?"))
    (tmp_path / "state.toml").write_text(test_apply.TOML)
    (tmp_path / "in").write_text("first\n")
    words = {
        "FILE": str(tmp_path / "state.toml"),
        "INPUT": str(tmp_path / "in"),
        "OUTPUT": str(tmp_path / "out"),
        "URL": balancer.url,
    }
    argv, handlers = run
    balancer.will(*handlers)
    COMMANDS[command].load()([words.get(word, word) for word in argv])
    said = capsys.readouterr()
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.out + said.err)  # the screen's own styles

    assert MARK in text, "it says what the balancer said"
    assert not STEERS.findall(text)
    if "--json" in argv:
        json.loads(said.out)
        return
    assert "[red][link=http://x]y[/]:smile:" in text
    if command not in ("chat", "generate"):
        assert not re.search("^forged", text, re.MULTILINE), text


def _typed(*lines: str) -> Callable[[str], str]:
    left = list(lines)

    def read(_prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


def test_programs_get_what_the_model_wrote(
    balancer: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(writes(token(EVIL), END))
    assert COMMANDS["generate"].load()(["why?"]) == 0
    assert capsys.readouterr().out == EVIL + "\n"
