import json
from pathlib import Path
from typing import Any

import pytest

from arriero.cli.commands.batch import main
from tests.cli.commands.answers import ANSWER, READY
from tests.client.fakes import FakeServer, says, writes

OPENAI = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
FULL = {"error": {"code": "queue_full", "message": "full", "retryable": True}}
WRONG = {"error": {"code": "invalid_request", "message": "no"}}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    lines = ["first", "", json.dumps(OPENAI), "{wrong", "last"]
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    return tmp_path / "in", tmp_path / "out"


def results(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(files: tuple[Path, Path], *flags: str) -> int:
    return main([*map(str, files), "--concurrency", "1", *flags])


def test_each_line_has_a_result(
    balancer: FakeServer, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says(READY), says(ANSWER), says({"id": "c1"}), says(WRONG, status=400))
    assert run(files, "--max-tokens", "2", "--json") == 1
    first, second, third, fourth = results(files[1])
    assert (first["line"], first["answer"]["text"]) == (1, "yes")
    assert second["response"]["body"] == {"id": "c1"}
    assert (third["line"], third["error"]["code"]) == (4, "invalid_request")
    assert (fourth["line"], fourth["error"]["message"]) == (5, "no")
    told = json.loads(capsys.readouterr().out)
    assert told == {"lines": 4, "failed": 2, "answered": 4}
    assert json.loads(balancer.seen[1][2])["max_tokens"] == 2
    assert balancer.seen[2][1:] == ("/v1/completions", b'{"prompt": "x"}')


def test_it_goes_on_where_it_stopped(balancer: FakeServer, files: tuple[Path, Path]) -> None:
    done = '{"line":1,"answer":{"text":"kept"}}\n'
    files[1].write_text(done + '{"line":5,"answ')  # killed while it wrote
    balancer.will(says(READY), says({"id": "c1"}), says(ANSWER))
    assert run(files) == 1
    assert files[1].read_text().startswith(done)
    assert [each.get("line") for each in results(files[1])] == [1, None, 4, 5]
    balancer.will(says(READY))
    assert run(files) == 1  # nothing to do; the failed line stays failed
    assert len(results(files[1])) == 4


def test_answers_to_another_input_are_no_answers(
    balancer: FakeServer, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = files
    source.write_text("one\n")
    balancer.will(says(READY), says(ANSWER))
    assert run(files) == 0
    for text, why in (("another\n", "another request for line 1"), ("", "no line of the input")):
        source.write_text(text)
        balancer.will(says(READY))
        assert run(files) == 2
        assert why in capsys.readouterr().err
    assert output.read_text().count("\n") == 1


def test_an_id_that_stands_twice_is_an_error_of_the_second(
    balancer: FakeServer, files: tuple[Path, Path]
) -> None:
    files[0].write_text(f"{json.dumps(OPENAI)}\n{json.dumps(OPENAI)}\n")
    balancer.will(says(READY), says({"id": "c1"}))
    assert run(files) == 1
    first, second = results(files[1])
    assert first["response"]["body"] == {"id": "c1"}
    assert (second["line"], "earlier line" in second["error"]["message"]) == (2, True)
    balancer.will(says(READY))
    assert run(files) == 1
    assert len(results(files[1])) == 2


def test_it_waits_for_room(balancer: FakeServer, files: tuple[Path, Path]) -> None:
    files[0].write_text("only\n")
    balancer.will(says(READY), says(FULL, status=503), says(FULL, status=503), says(ANSWER))
    assert run(files) == 0
    assert [each["line"] for each in results(files[1])] == [1]


def test_no_file_is_overwritten_that_holds_something_else(
    balancer: FakeServer, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[1].write_text("my\nnotes\n")
    balancer.will(says(READY))
    assert run(files) == 2
    assert "contains other data than results" in capsys.readouterr().err
    assert files[1].read_text() == "my\nnotes\n"


def test_files_that_cannot_be_opened(
    balancer: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    balancer.will(says(READY), says(READY))
    assert main([str(tmp_path / "none"), str(tmp_path / "out")]) == 2
    (tmp_path / "in").write_text("x\n")
    assert main([str(tmp_path / "in"), str(tmp_path / "no" / "out")]) == 2
    said = capsys.readouterr().err
    assert "cannot read" in said
    assert "cannot write" in said


BATCH = {
    "id": "b",
    "status": "completed",
    "input_file_id": "f",
    "output_file_id": "o",
    "error_file_id": None,
    "request_counts": {"total": 1, "completed": 1, "failed": 0},
    "errors": None,
}


def test_the_balancer_runs_it(
    balancer: FakeServer, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[0].write_text(json.dumps(OPENAI) + "\n")
    balancer.will(says({"id": "f"}), says(BATCH), writes(b"answer\n"))
    assert main([*map(str, files), "--server-side", "--json"]) == 0
    assert files[1].read_text() == "answer\n"
    told = json.loads(capsys.readouterr().out)
    assert told == {"batch": "b", "status": "completed", "lines": 1, "failed": 0, "answered": 1}


def test_what_is_wrong_with_the_whole_is_said(
    balancer: FakeServer, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files[0].write_text(json.dumps(OPENAI) + "\n")
    faults = {"data": [{"message": "two lines have one custom_id"}]}
    balancer.will(says({"id": "f"}))
    balancer.will(says(BATCH | {"status": "failed", "output_file_id": None, "errors": faults}))
    assert main([*map(str, files), "--server-side"]) == 1
    assert "b is failed; two lines have one custom_id" in capsys.readouterr().err


def test_options_are_for_lines_that_the_command_sends(
    balancer: FakeServer, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(files, "--server-side") == 2
    assert main([*map(str, files), "--server-side", "--seed", "1"]) == 2
    assert "no other options" in capsys.readouterr().err
