"""Families without calls: EXAONE, and `plain` for every template that is not recognised."""

from ..family import Evidence, Family, ReasoningMarkers, Summary, hints

EXAONE = Family(
    name="exaone",
    summary=Summary("`<thought>…</thought>`", "none"),
    hints=hints("<thought>", evidence=Evidence.WEAK),
    reasoning=ReasoningMarkers("<thought>", "</thought>"),
)

PLAIN = Family(name="plain", summary=Summary("none", "none"))
