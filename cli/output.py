"""Where commands print, and how values look there."""

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
"""Columns of what is no terminal: nothing is wrapped or cut there."""


def console() -> "Screen":
    """Where tables and lines go: stdout, as wide as the terminal is, or as wide as they are."""
    from .screen import Screen

    is_bounded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Screen(width=None if is_bounded else WIDE)


def say(line: str, stream: TextIO | None = None) -> None:
    """Write one line of plain text to `stream` (stderr)."""
    stream = stream or sys.stderr
    stream.write(printable(line) + "\n")


def print_json(value: object) -> None:
    """One line of JSON on stdout."""
    say(json.dumps(value, ensure_ascii=False), sys.stdout)
    sys.stdout.flush()


def duration(seconds: float | None) -> str:
    """`0.3 s`, `12 s`, `3 m 20 s`, `2 h 5 m`; `-` for none."""
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
    """Tokens a second; `-` for none."""
    return "-" if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def in_gib(num_bytes: int) -> str:
    """`1.5 GiB`."""
    return f"{num_bytes / 2**30:.1f} GiB"


def namesakes(agents: Iterable[dict[str, Any]]) -> list[str]:
    """The names that several agents have, in words."""
    counts = Counter(agent["name"] for agent in agents)
    return [f"{num} agents are called {name}" for name, num in counts.items() if num > 1]


def issues(entry: dict[str, Any]) -> str:
    """The issues, each with what to do about it, on a line of its own."""
    return "\n".join(
        printable(each["message"] + (f" → {each['hint']}" if each.get("hint") else ""))
        for each in entry.get("issues") or ()
    )
