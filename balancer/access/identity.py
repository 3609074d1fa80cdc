"""Whom a key belongs to: its name, its role, and its limits. Never the key."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from ...shared.strict import STRICT, ListOf

Role = Literal["inference", "viewer", "operator", "admin", "agent"]
"""`inference` calls models; `viewer` sees the fleet; `operator` drains, cancels, reloads as well;
`admin` changes wishes and keys as well; `agent` joins."""

PriorityClass = Literal["batch", "default", "interactive"]
"""In rising order."""

MAX_MODELS = 256
Positive = Annotated[int, Field(ge=1, lt=2**31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """What a caller may use; `None` is no limit.

    `models`: names that it may ask for. `max_tokens`: most tokens of one answer. `priority`: the
    highest class that its requests may have.
    """

    __pydantic_config__ = STRICT
    models: Annotated[ListOf[str], Field(max_length=MAX_MODELS)] | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    max_concurrent: Positive | None = None
    max_queued: Positive | None = None
    max_tokens: Positive | None = None
    priority: PriorityClass = "interactive"


NO_LIMITS = CallerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A key's holder. `name` is unique among keys and may label metrics."""

    name: str
    role: Role
    limits: CallerLimits = field(default=NO_LIMITS)
