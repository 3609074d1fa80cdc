"""Priority classes: who gets a slot before whom. A number says its class by its sign."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

PriorityClass = Literal["batch", "default", "interactive"]
"""In rising order."""

PRIORITY_CLASSES: tuple[PriorityClass, ...] = get_args(PriorityClass)
PRIORITY_NUMBERS: dict[str, int] = {"batch": -1, "default": 0, "interactive": 1}
"""The `priority` that each word stands for."""


def priority_class_of(priority: int | None) -> PriorityClass:
    """Numbers above 0 are interactive, those below 0 batch. Without a number it is default."""
    if priority is None or priority == 0:
        return "default"
    return "interactive" if priority > 0 else "batch"


def is_background(priority: int | None) -> bool:
    """Whether its class is `batch`, which is preempted for the others."""
    return priority_class_of(priority) == "batch"


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

UsedTier = Literal["default", "flex", "priority"]
"""OpenAI's words for the class that a request had."""

_TIERS: dict[str, PriorityClass] = {
    "flex": "batch",
    **dict.fromkeys(("default", "scale"), "default"),
    **dict.fromkeys(("priority", "fast", "ultrafast"), "interactive"),
}
_USED: dict[PriorityClass, UsedTier] = {
    "batch": "flex",
    "default": "default",
    "interactive": "priority",
}


def priority_of_tier(tier: ServiceTier | None) -> int | None:
    """The priority that a service tier asks for; with `auto` the caller's own counts."""
    kind = _TIERS.get(tier or "auto")
    return None if kind is None else PRIORITY_NUMBERS[kind]


def tier_of(priority: int | None) -> UsedTier:
    """The service tier that stands for the class of a priority."""
    return _USED[priority_class_of(priority)]
