"""A console that nothing which came from elsewhere can steer."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ..shared.printable import printable

LAYOUT = "\n\t"
"""Controls that a `Text` may have."""


class Screen(Console):
    """A string is one line of plain text, whatever is in it; a `Text` may have several lines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Cells, headings and lines that are strings come here."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Everything that is printed comes here; Rich's own controls are marked as such."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text, keep=LAYOUT)
            yield Segment(text, segment.style, segment.control)
