"""A small line plot as SVG: throughput and first token over the number of clients."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 60, 50


def line_plot(title: str, labels: Sequence[str], values: Sequence[float], *, unit: str) -> str:
    """`values` over evenly spaced `labels`, from zero."""
    top = max(values, default=0) or 1.0
    step = (WIDTH - LEFT - 20) / max(1, len(values) - 1)
    points = [
        (LEFT + index * step, HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - 40))
        for index, value in enumerate(values)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        f'<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle">{value:.3g}</text>'
        f'<text x="{x:.1f}" y="{HEIGHT - 25}" text-anchor="middle">{escape(label)}</text>'
        for (x, y), value, label in zip(points, values, labels, strict=True)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="#333">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)} ({escape(unit)})</text>'
        f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - 20}" y2="{HEIGHT - BOTTOM}" '
        f'stroke="#999"/><polyline points="{path}" fill="none" stroke="#2563eb" '
        f'stroke-width="2"/>{marks}<text x="{WIDTH / 2}" y="{HEIGHT - 5}" '
        f'text-anchor="middle">clients at once</text></svg>\n'
    )
