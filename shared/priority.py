"""Priority classes, which order waiting requests. The sign of a number is its class."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

PriorityClass = Literal["batch", "default", "interactive"]
"""The classes in ascending order."""

PRIORITY_CLASSES: tuple[PriorityClass, ...] = get_args(PriorityClass)
PRIORITY_NUMBERS: dict[str, int] = {"batch": -1, "default": 0, "interactive": 1}
"""The `priority` of each class name."""


def priority_class_of(priority: int | None) -> PriorityClass:
    """Return the class: above 0 `interactive`, below 0 `batch`, 0 or no number `default`."""
    if priority is None or priority == 0:
        return "default"
    return "interactive" if priority > 0 else "batch"


def is_background(priority: int | None) -> bool:
    """Return whether the class is `batch`, which is preempted for the other classes."""
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
"""A number, or the name of a class, which becomes a number."""

ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
"""OpenAI's service tiers in requests."""

UsedTier = Literal["default", "flex", "priority"]
"""OpenAI's service tiers in answers, for the class that a request had."""

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
    """Return the priority of a service tier; `None` for `auto`: the caller's own priority."""
    kind = _TIERS.get(tier or "auto")
    return None if kind is None else PRIORITY_NUMBERS[kind]


def tier_of(priority: int | None) -> UsedTier:
    """Return the service tier for the class of a priority."""
    return _USED[priority_class_of(priority)]
