import pytest

from arriero.cli.output import duration, issues, print_json, rate


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(None, "-"), (0.04, "0.0 s"), (9.94, "9.9 s"), (12.3, "12 s"), (200, "3 m 20 s")],
        *[(59.6, "1 m 0 s"), (3600 * 49 + 300, "49 h 5 m")],
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_rates() -> None:
    assert [rate(value) for value in (None, 0.0, 99.94, 100.4)] == ["-", "0.0", "99.9", "100"]


def test_issues_say_what_to_do() -> None:
    entry = {
        "issues": [{"message": "disk full", "hint": "make room"}, {"message": "b", "hint": ""}]
    }
    assert issues(entry) == "disk full → make room\nb"
    assert issues({}) == ""


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "ä\n"})
    assert capsys.readouterr().out == '{"a": "ä\\n"}\n'
