"""Answers of figures: their places, roundings, and types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from arriero.balancer.management.figures import Answer, answer_of
from arriero.shared.reports.figures import Figure


@dataclass(frozen=True)
class Disk:
    num_bytes: Annotated[int, Figure("disk.bytes")] = 1
    unnamed: Annotated[int, Figure()] = 2


@dataclass(frozen=True)
class Report:
    rate: Annotated[float | None, Figure("rate")] = 1.2345
    seconds: Annotated[float, Figure("seconds_total", digits=3)] = 1.2345
    running: Annotated[int, Figure("sequences.running")] = 1
    waiting: Annotated[int, Figure("sequences.waiting")] = 2
    by_class: Annotated[Mapping[str, int], Figure("by_class")] = field(default_factory=dict)
    disk: Disk | None = None


class OneReport(Answer):
    OF = Report
    OPTIONAL = ("at",)
    at: float


BARE = {
    "rate": 1.23,
    "seconds_total": 1.234,
    "sequences": {"running": 1, "waiting": 2},
    "by_class": {},
    "disk": None,
}


@pytest.mark.parametrize(
    ("report", "answer"),
    [
        (Report(), BARE),
        (Report(rate=None, disk=Disk()), {**BARE, "rate": None, "disk": {"bytes": 1}}),
    ],
)
def test_an_answer_is_of_its_type(report: Report, answer: object) -> None:
    assert answer_of(report) == answer
    TypeAdapter(OneReport).validate_python(answer, extra="forbid")
    TypeAdapter(OneReport).validate_python({**BARE, "at": 1.0}, extra="forbid")


class Unmeasured(Answer):
    OF = Report
    KNOWN = ("sequences.running",)


def test_an_answer_without_a_report_has_all_figures() -> None:
    answer = answer_of(None, Report)
    assert answer.keys() == BARE.keys()
    assert answer["rate"] is None
    answer["sequences"]["running"] = 1
    TypeAdapter(Unmeasured).validate_python(answer, extra="forbid")
