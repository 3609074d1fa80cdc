"""What is found of figures that stand beside fields, and of those that are properties."""

from dataclasses import dataclass, field
from typing import Annotated

from arriero.shared.reports.figures import Family, Figure, figures_of

FAMILY = Family("cells", "Cells.", label="state")


@dataclass(frozen=True)
class Part:
    used: Annotated[int, Figure("cells.used", metric=FAMILY, label="used")] = 1
    other: int = 2

    @property
    def free(self) -> Annotated[int, Figure(metric=FAMILY, label="free")]:
        return 10 - self.used


@dataclass(frozen=True)
class Report:
    name: str = ""
    here: Part = field(default_factory=Part)
    absent: Part | None = None
    total: Annotated[float | None, Figure("total")] = None


def test_parts_and_properties_are_looked_at() -> None:
    found = figures_of(Report)
    assert [each.path for each in found] == [
        *(("here", "free"), ("here", "used")),
        *(("absent", "free"), ("absent", "used")),
        ("total",),
    ]
    assert [each.is_optional for each in found] == [False, False, True, True, False]
    assert [each.of(Report()) for each in found] == [9, 1, None, None, None]
    assert [each.figure.label for each in found[:2]] == ["free", "used"]
