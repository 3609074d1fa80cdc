"""The figures of an engine, from their declarations in `shared/reports/statistics.py`."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from arriero.shared.reports.figures import Figure, figures_of
from arriero.shared.reports.statistics import Statistics

from .tables import table


def figures_table() -> str:
    """For `docs/api.md`: what the members of an agent's `statistics` mean."""
    rows = [(f"`{each.name}`", each.meaning) for each in _figures() if each.name]
    return "\n" + table(("field", "what"), rows) + "\n"


def figure_lines() -> str:
    """For the dashboard: title, hint, words with values, and what each line needs."""
    lines = [asdict(each.line) for each in _figures() if each.line is not None]
    return "\n".join(f"  {json.dumps(line, ensure_ascii=False)}," for line in lines)


def _figures() -> Iterator[Figure]:
    return (found.figure for found in figures_of(Statistics))
