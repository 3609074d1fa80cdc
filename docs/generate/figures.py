"""Makes tables for docs and dashboard from the figures in `shared/reports/figures.py`."""

import json
from dataclasses import asdict

from arriero.balancer.fleet.device_past import name_of_past
from arriero.balancer.fleet.view import AgentFigures
from arriero.shared.models.assignments import HostFacts
from arriero.shared.reports.figures import FoundFigure, figures_of
from arriero.shared.reports.statistics import DeviceMemory, Statistics

from .tables import table


def engine_table() -> str:
    """Return the table for `docs/api/management.md` with an agent's `statistics`."""
    return _table(Statistics)


def device_table() -> str:
    """Return the table for `docs/api/management.md` with the figures of `devices`."""
    return _table(DeviceMemory)


def agent_table() -> str:
    """Return the table for `docs/api/management.md` with the other figures of an agent."""
    return _table(AgentFigures, HostFacts)


def _table(*kinds: type) -> str:
    figures = (found.figure for kind in kinds for found in figures_of(kind))
    rows = [(f"`{each.name}`", each.meaning) for each in figures if each.name]
    return "\n" + table(("field", "what"), rows) + "\n"


def figure_lines() -> str:
    """Return the lines of figures for the dashboard."""
    lists = {
        "FIGURES": map(_line, _with_lines(Statistics)),
        "AGENT_FIGURES": map(_line, _with_lines(AgentFigures, HostFacts)),
        "DEVICE_FIGURES": (
            {"name": each.figure.name, "past": name_of_past(each), **_line(each)}
            for each in _with_lines(DeviceMemory)
        ),
    }
    return "\n".join(
        f"\nexport const {name} = [\n{''.join(map(_entry, lines))}];"
        for name, lines in lists.items()
    )


def _entry(line: dict[str, object]) -> str:
    return f"  {json.dumps(line, ensure_ascii=False)},\n"


def _line(found: FoundFigure) -> dict[str, object]:
    """Return the members of a line that are not empty."""
    assert found.figure.line is not None
    return {name: value for name, value in asdict(found.figure.line).items() if value}


def _with_lines(*kinds: type) -> list[FoundFigure]:
    found = (each for kind in kinds for each in figures_of(kind))
    return [each for each in found if each.figure.line is not None]
