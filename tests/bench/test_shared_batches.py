import json
from typing import Any

from bench.shared_batches import lines, wrong_of


def row(id: str, status: int = 200) -> dict[str, Any]:
    return {"custom_id": id, "response": {"status_code": status}}


def test_each_line_has_a_name_of_its_own() -> None:
    told = [json.loads(line) for line in lines(3, "m").splitlines()]
    assert [line["custom_id"] for line in told] == ["r0", "r1", "r2"]
    assert {line["body"]["model"] for line in told} == {"m"}


def test_lines_that_are_answered_exactly_once_are_right_in_any_order() -> None:
    assert wrong_of([row("r1"), row("r0")], 2) == []


def test_lines_are_wrong_that_miss_come_twice_or_were_never_asked() -> None:
    rows = [row("r0"), row("r0"), row("r2", 500), row("x")]
    assert wrong_of(rows, 3) == [
        "r0: 2 answers",
        "r1: 0 answers",
        "r2: 0 answers",
        "x: 1 answers",
    ]
