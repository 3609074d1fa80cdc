import json

import pytest

from arriero.shared.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('plain äß 漢字 שלום 👩‍💻 \\ "quoted"', None),
        ("\x1b]52;c;aGk=\x07", "\\u001b]52;c;aGk=\\u0007"),
        ("\x1b[31mred\x9b0m\x9d0;title\x9c", "\\u001b[31mred\\u009b0m\\u009d0;title\\u009c"),
        ("a\nb\r\tc\x7f\x00", "a\\nb\\r\\tc\\u007f\\u0000"),
        ("\u202eexe.gpj\u2066\u2069\u202c", "\\u202eexe.gpj\\u2066\\u2069\\u202c"),
        ("a\u2028b\u2029\x85", "a\\u2028b\\u2029\\u0085"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, shown: str | None) -> None:
    assert printable(text) == (text if shown is None else shown)


def test_what_is_kept() -> None:
    assert printable("a\n\tb\x1b\r", keep="\n\t") == "a\n\tb\\u001b\\r"


def test_json_stays_the_same_json() -> None:
    value = {"\x9b": ["\x1b\u202e\x7f\ud800", "\n"]}
    assert json.loads(printable(json.dumps(value, ensure_ascii=False))) == value
