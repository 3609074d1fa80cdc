"""Priority classes: who gets a slot before whom. A number says its class by its sign."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

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


def _number_of(priority: object) -> object:
    if not isinstance(priority, str):
        return priority
    if priority not in PRIORITY_NUMBERS:
        raise ValueError("must be `interactive`, `default`, `batch`, or a number of -100 to 100")
    return PRIORITY_NUMBERS[priority]


_Number = Annotated[int, Field(ge=-100, le=100)]
Priority = Annotated[
    _Number, BeforeValidator(_number_of, json_schema_input_type=_Number | PriorityClass)
]
"""A number, or the word of a class, which becomes one."""

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
"""OpenAI's words."""

_TIERS: dict[str, PriorityClass] = {
    "flex": "batch",
    **dict.fromkeys(("priority", "fast", "ultrafast"), "interactive"),
}


def priority_of_tier(tier: ServiceTier | None) -> int:
    """The priority that a service tier asks for."""
    return PRIORITY_NUMBERS[_TIERS.get(tier or "auto", "default")]
