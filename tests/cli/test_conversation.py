from pathlib import Path

import pytest

from arriero.cli import conversation
from arriero.cli.conversation import Conversation, FileProblem, with_files


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
    with pytest.raises(FileProblem, match="cannot read"):
        with_files(f"@{binary}")
    monkeypatch.setattr(conversation, "MAX_FILE", 1)
    with pytest.raises(FileProblem, match="larger than"):
        with_files(f"@{binary}")
