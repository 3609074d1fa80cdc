"""Line charts as SVG: few lines, logarithmic axes, colours that both lights can bear."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 34, 46
COLOURS = ("#c2255c", "#1971c2", "#2f9e44", "#e8590c", "#7048e8", "#868e96")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high`; logarithmic ones are above 0."""

    low: float
    high: float
    is_logarithmic: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.is_logarithmic:
            span = math.log(self.high / self.low) or 1.0
            return math.log(max(value, self.low) / self.low) / span
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self) -> list[float]:
        """Powers of ten, or five equal parts."""
        if self.is_logarithmic:
            first = math.floor(math.log10(self.low) + 1e-9)
            last = math.ceil(math.log10(self.high) - 1e-9)
            powers = [10.0**power for power in range(first, last + 1)]
            return [each for each in powers if self.low <= each * 1.0001 <= self.high * 1.001]
        return [self.low + (self.high - self.low) * part / 4 for part in range(5)]


def line_chart(title: str, x_label: str, lines: Mapping[str, Points], x: Axis, y: Axis) -> str:
    """An SVG document. Each line is named beside its end; names are escaped."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">{escape(title)}</text>',
        *_grid(x, y),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle" '
        f'fill="#495057">{escape(x_label)}</text>',
    ]
    for number, (name, points) in enumerate(lines.items()):
        parts += _line(name, points, COLOURS[number % len(COLOURS)], x, y, number)
    return "\n".join([*parts, "</svg>\n"])


def _across(place: float) -> float:
    return round(LEFT + place * (WIDTH - LEFT - RIGHT), 1)


def _down(place: float) -> float:
    return round(HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM), 1)


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for tick in y.ticks():
        down = _down(y.place(tick))
        parts.append(
            f'<path d="M{LEFT} {down}H{WIDTH - RIGHT}" stroke="#dee2e6"/>'
            f'<text x="{LEFT - 6}" y="{down + 4}" text-anchor="end" fill="#495057">{tick:g}</text>'
        )
    for tick in x.ticks():
        parts.append(
            f'<text x="{_across(x.place(tick))}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" '
            f'fill="#495057">{tick:g}</text>'
        )
    return parts


def _line(name: str, points: Points, colour: str, x: Axis, y: Axis, number: int) -> list[str]:
    places = [(_across(x.place(at)), _down(y.place(value))) for at, value in points]
    drawn = " ".join(f"{across},{down}" for across, down in places)
    beside = TOP + 14 + 18 * number
    return [
        f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>',
        f'<rect x="{WIDTH - RIGHT + 12}" y="{beside - 9}" width="10" height="10" rx="2" '
        f'fill="{colour}"/>',
        f'<text x="{WIDTH - RIGHT + 28}" y="{beside}">{escape(name)}</text>',
    ]
