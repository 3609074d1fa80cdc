import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arriero.cli.commands import chat
from arriero.cli.commands.chat import Conversation, FileProblem, main, with_files
from tests.cli.commands.answers import END, token
from tests.client.fakes import FakeServer, says, writes


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines that a person will type; then comes Ctrl-D."""
    lines: list[str] = []

    def read() -> Iterator[str]:
        yield from lines
        raise EOFError

    reader = read()
    monkeypatch.setattr("builtins.input", lambda _: next(reader))
    return lines


def conversations(balancer: FakeServer) -> list[list[tuple[str, str]]]:
    bodies = [json.loads(body) for _, _, body in balancer.seen]
    return [[(each["role"], each["content"]) for each in body["messages"]] for body in bodies]


def test_a_conversation(
    balancer: FakeServer, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    typed += ["one", "two\\", "lines", "", "/system be kind", "/retry", "/clear", "three"]
    balancer.will(*[writes(token("hm", "reasoning"), token(f"a{n}"), END) for n in range(4)])
    assert main([]) == 0
    assert conversations(balancer) == [
        [("user", "one")],
        [("user", "one"), ("assistant", "a0"), ("user", "two\nlines")],
        [("system", "be kind"), ("user", "one"), ("assistant", "a0"), ("user", "two\nlines")],
        [("system", "be kind"), ("user", "three")],
    ]
    assert "a3" in capsys.readouterr().out


def test_an_error_ends_no_conversation(
    balancer: FakeServer, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    typed += ["one", "two", "/nonsense", "/quit", "never asked"]
    refusal = {"error": {"code": "invalid_request", "message": "too odd"}}
    balancer.will(says(refusal, status=400), writes(token("a"), END))
    assert main(["--no-thinking", "--system", "s"]) == 0
    assert conversations(balancer)[1] == [("system", "s"), ("user", "two")]
    assert json.loads(balancer.seen[0][2])["thinking"] is False
    out = capsys.readouterr().out
    assert "too odd" in out
    assert "/retry" in out


def test_the_exit_code_is_that_of_the_last_question(
    balancer: FakeServer, typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    typed += ["one", "@/nope/x what?"]
    balancer.will(writes(token("a"), END))
    assert main([]) == 2
    assert "there is no file /nope/x" in capsys.readouterr().out
    assert len(balancer.seen) == 1


@pytest.mark.parametrize(
    ("status", "code", "exit_code"), [(404, "model_not_found", 2), (503, "queue_full", 1)]
)
def test_a_question_that_is_refused(
    balancer: FakeServer, typed: list[str], status: int, code: str, exit_code: int
) -> None:
    typed += ["one"]
    balancer.will(says({"error": {"code": code, "message": "no"}}, status=status))
    assert main([]) == exit_code


def test_turns_alternate_behind_the_system_message() -> None:
    chat = Conversation("be kind")
    for number in range(3):
        chat.answered(f"q{number}", f"a{number}")
    roles = [message["role"] for message in chat.asked("next")]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]
    assert len(chat.turns) == 6


def test_the_last_turn_can_be_taken_back() -> None:
    chat = Conversation()
    assert chat.take_back() is None
    chat.answered("q", "a")
    assert (chat.take_back(), chat.turns) == ("q", [])


def test_files_stand_behind_the_question(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = '```'\n")
    text = f"see @{file} and @{file}, mail me@{file}, ask @nobody"
    assert with_files(text) == f"{text}\n\n{file}:\n````\nx = '```'\n````"


def test_files_that_cannot_be_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "b"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(FileProblem, match=r"cannot read .*: it is not text"):
        with_files(f"@{binary}")
    with pytest.raises(FileProblem, match=r"there is no file \./none$"):
        with_files("see @./none, please")
    monkeypatch.setattr(chat, "MAX_FILE", 1)
    with pytest.raises(FileProblem, match="larger than"):
        with_files(f"@{binary}")
