"""Metrics made of figures (`shared/reports/figures.py`)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ....shared.reports.figures import Family, FoundFigure, figures_of

Reports = Mapping[tuple[str, ...], Iterable[object]]
"""Reports of one kind, by the values of the labels. Reports with the same labels are summed."""


def figure_metrics(
    kind: type, reports: Reports, prefix: str = "", labels: tuple[str, ...] = ()
) -> Iterator[Metric]:
    """Yield the metrics of all figures of a kind of report."""
    families = {found.figure.metric: None for found in figures_of(kind)}
    for family in filter(None, families):
        names = [*labels, *([] if family.label is None else [family.label])]
        make = CounterMetricFamily if family.is_counter else GaugeMetricFamily
        metric = make(f"arriero_{prefix}{family.name}", family.help, labels=names)
        own = [found for found in figures_of(kind) if found.figure.metric == family]
        for key, several in reports.items():
            for label, total in _totals(own, family, several).items():
                metric.add_metric([*key, label][: len(names)], total)
        yield metric


def _totals(
    own: Iterable[FoundFigure], family: Family, reports: Iterable[object]
) -> dict[str, float]:
    """Return totals by the value of the family's own label.

    If a figure is a mapping, its keys are the values of the label.
    """
    totals: dict[str, float] = defaultdict(float)
    for report in reports:
        for found in own:
            value = found.of(report)
            values = value if isinstance(value, Mapping) else {found.figure.label: value}
            for label, number in values.items():
                if (number := family.absent if number is None else number) is not None:
                    totals[label] += number
    return totals
