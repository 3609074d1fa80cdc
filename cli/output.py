"""Output of commands: where it goes, and how values are written."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from ..shared.printable import printable

if TYPE_CHECKING:
    from .screen import Screen

WIDE = 10_000
"""Columns of an output that is not a terminal, so that nothing is wrapped or cut."""


def console() -> "Screen":
    """Return the console on stdout, as wide as the terminal, or as its lines.

    The variable `COLUMNS` sets the width of an output that is not a terminal.
    """
    from .screen import Screen

    is_bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Screen(width=None if is_bounded else WIDE)


def say(line: str, stream: TextIO | None = None) -> None:
    """Write one line of plain text to `stream` (stderr)."""
    stream = stream or sys.stderr
    stream.write(printable(line) + "\n")


def print_json(value: object) -> None:
    """Write one line of JSON to stdout."""
    say(json.dumps(value, ensure_ascii=False), sys.stdout)
    sys.stdout.flush()


def duration(seconds: float | None) -> str:
    """Format a duration: `0.3 s`, `12 s`, `3 m 20 s`, `2 h 5 m`; `-` for `None`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    return f"{minutes // 60} h {minutes % 60} m"


def rate(value: float | None) -> str:
    """Format tokens a second; `-` for `None`."""
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def in_gib(num_bytes: int) -> str:
    """Format bytes as `1.5 GiB`."""
    return f"{num_bytes / 2**30:.1f} GiB"


def namesakes(agents: Iterable[dict[str, Any]]) -> list[str]:
    """Return a sentence for each name that several agents have."""
    counts = Counter(agent["name"] for agent in agents)
    return [f"{num} agents are called {name}" for name, num in counts.items() if num > 1]


def issues(entry: dict[str, Any]) -> str:
    """Return the issues, one a line, each with its hint."""
    return "\n".join(
        printable(each["message"] + (f" → {each['hint']}" if each.get("hint") else ""))
        for each in entry.get("issues") or ()
    )
