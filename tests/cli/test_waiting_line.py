import io

import pytest

from arriero.cli.waiting_line import ERASE, WaitingLine, waiting_words
from arriero.client.answers import Waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (Waiting(position=3, seconds_left=12.0), "waiting for a slot, at place 3, about 12 s"),
        (Waiting(position=1, what="model"), "waiting for the model, at place 1"),
        (Waiting(), "waiting for a slot"),
    ],
)
def test_words(waiting: Waiting, words: str) -> None:
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


def test_a_file_has_none() -> None:
    file = io.StringIO()
    line = WaitingLine(file)
    line.show(Waiting(position=2))
    line.clear()
    assert file.getvalue() == ""
