"""A console that foreign text cannot control."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..shared.printable import printable

LAYOUT = "\n\t"
"""Control characters that a `Text` may have."""


class Screen(Console):
    """Prints a string as one line of plain text, whatever it contains; a `Text` may have several
    lines.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a string printable. Cells, headings and lines that are strings pass through this
        method.
        """
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Make all output printable, except Rich's own control segments."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text, keep=LAYOUT)
            yield Segment(text, segment.style, segment.control)
