"""Priority classes: who gets a slot before whom. A number says its class by its sign."""

from typing import Literal, get_args

PriorityClass = Literal["batch", "default", "interactive"]
"""In rising order."""

PRIORITY_CLASSES: tuple[PriorityClass, ...] = get_args(PriorityClass)
PRIORITY_NUMBERS: dict[str, int] = {"batch": -1, "default": 0, "interactive": 1}
"""The `priority` that each word stands for."""


def priority_class_of(priority: int) -> PriorityClass:
    """Numbers above 0 are interactive, those below 0 batch."""
    if priority > 0:
        return "interactive"
    return "batch" if priority < 0 else "default"
