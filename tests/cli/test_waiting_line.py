import io

import pytest

from arriero.cli.waiting_line import ERASE, WaitingLine, waiting_words
from arriero.client.answers import Reading, Waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (Waiting(position=3, seconds_left=12.0), "waiting for a slot, at place 3, about 12 s"),
        (
            Waiting(position=1, what="model", reason="no agent is connected"),
            "waiting for the model, at place 1: no agent is connected",
        ),
        (Waiting(), "waiting for a slot"),
        (Reading(), "reading the prompt"),
        (Reading(read_tokens=1750, prompt_tokens=7000), "reading the prompt: 25%"),
    ],
)
def test_words(waiting: Waiting | Reading, words: str) -> None:
    assert waiting_words(waiting) == words


def test_a_terminal_has_one_line_that_goes_when_the_answer_comes() -> None:
    terminal = Terminal()
    line = WaitingLine(terminal)
    line.clear()
    assert terminal.getvalue() == ""
    line.show(Waiting(position=2))
    line.show(Waiting(position=1))
    line.clear()
    line.clear()
    words = "waiting for a slot, at place"
    assert terminal.getvalue() == f"{ERASE}{words} 2{ERASE}{words} 1{ERASE}"


def test_what_is_longer_than_a_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    WaitingLine(terminal).show(Waiting(position=2))
    assert terminal.getvalue() == f"{ERASE}waiting for a slot…"


def test_a_file_has_a_line_for_each_reason_why_no_agent_serves() -> None:
    file = io.StringIO()
    line = WaitingLine(file)
    line.show(Waiting(position=2))
    assert file.getvalue() == ""
    for position, reason in ((2, "no agent"), (1, "no agent"), (1, "it loads")):
        line.show(Waiting(position=position, what="model", reason=reason))
    line.clear()
    words = "waiting for the model, at place"
    assert file.getvalue() == f"{words} 2: no agent\n{words} 1: it loads\n"
