"""Whom a key belongs to: its name, its role, and its limits. Never the key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from ...shared.inference import PriorityClass as PriorityClass
from ...shared.strict import STRICT, ListOf

Role = Literal["inference", "viewer", "operator", "admin", "agent"]
"""`inference` calls models; `viewer` sees the fleet; `operator` drains, cancels, reloads as well;
`admin` changes wishes and keys as well; `agent` joins."""

MAX_MODELS = 256
Positive = Annotated[int, Field(ge=1, lt=2**31)]
ModelName = Annotated[str, Field(min_length=1, max_length=512)]
Models = Annotated[ListOf[ModelName], Field(min_length=1, max_length=MAX_MODELS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """What a caller may use; `None` is no limit.

    `models`: names that it may ask for. `max_tokens`: most tokens of one answer. `priority`: the
    highest class that its requests may have. `default_priority`: that of requests that name none.
    """

    __pydantic_config__ = STRICT
    models: Models | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    max_concurrent: Positive | None = None
    max_queued: Positive | None = None
    max_tokens: Positive | None = None
    priority: PriorityClass = "interactive"
    default_priority: PriorityClass | None = None


NO_LIMITS = CallerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A key's holder. `name` is unique among keys and may label metrics.

    `owner` is what belongs to it (a stored response, say): unlike the name, no later key has it.
    `digest` tells a key from the one that replaced it (`rotate`); it opens nothing. `labels`: those
    that an agent with this key may have at most; `None` is any.
    """

    name: str
    role: Role
    limits: CallerLimits = field(default=NO_LIMITS)
    labels: tuple[tuple[str, str], ...] | None = None
    owner: str = ""
    digest: str = field(default="", repr=False)

    def excess(self, labels: Mapping[str, str], models: Iterable[str]) -> str | None:
        """Why an agent with these labels and models may not have this key; `None` if it may."""
        if self.labels is not None:
            for label in labels.items():
                if label not in self.labels:
                    return f"the key {self.name!r} does not allow the label {'='.join(label)!r}"
        if self.limits.models is not None:
            for model in models:
                if model not in self.limits.models:
                    return f"the key {self.name!r} does not allow the model {model!r}"
        return None
