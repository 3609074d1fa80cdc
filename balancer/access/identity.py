"""The holder of a key: its name, its role, and its limits, but never the key."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from ...shared.priority import PriorityClass as PriorityClass
from ...shared.strict import STRICT, ListOf
from ...shared.validation import requirement

Role = Literal["inference", "viewer", "operator", "admin", "agent"]
"""The roles. `inference` calls models; `agent` joins the fleet.

`viewer` sees the fleet. `operator` can also drain, cancel and reload. `admin` can also change the
desired state and the keys.
"""

MAX_MODELS = 256
Positive = Annotated[int, Field(ge=1, lt=2**31)]
ModelName = Annotated[str, Field(min_length=1, max_length=512)]
Models = Annotated[ListOf[ModelName], Field(min_length=1, max_length=MAX_MODELS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """A caller's limits; `None` means no limit.

    `models`: the names of the models that the caller may use. `max_tokens`: maximum tokens of one
    answer. `priority`: the highest priority of its requests. `default_priority`: the priority of
    requests without a priority.
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

    `owner` owns the things that the holder creates, such as stored responses; unlike the name, no
    later key has the same owner. `digest` identifies the key, also after `rotate`; it grants
    nothing. `labels` are the labels that an agent with this key may have; `None` means any.
    `session` names the session of the dashboard through which the holder came, if any; it grants
    nothing either.
    """

    name: str
    role: Role
    limits: CallerLimits = field(default=NO_LIMITS)
    labels: tuple[tuple[str, str], ...] | None = None
    owner: str = ""
    digest: str = field(default="", repr=False)
    session: str = field(default="", repr=False, compare=False)

    def excess(self, labels: Mapping[str, str], models: Iterable[str]) -> str | None:
        """Return why an agent with these labels and models may not use this key.

        Returns `None` if the agent may use it.
        """
        if self.labels is not None:
            for label in labels.items():
                if label not in self.labels:
                    return f"the key {self.name!r} does not allow the label {'='.join(label)!r}"
        if self.limits.models is not None:
            for model in models:
                if model not in self.limits.models:
                    return f"the key {self.name!r} does not allow the model {model!r}"
        return None


# ---- limits as operators write them in a setting: `requests-per-minute=60,max-concurrent=4`


NAMES = tuple(field.name.replace("_", "-") for field in fields(CallerLimits))
_LIMITS = TypeAdapter(CallerLimits)


def parse_limits(value: object) -> CallerLimits:
    """Return the limits in a text, in which several models are separated by `+`.

    Raises `ValueError`.
    """
    if isinstance(value, CallerLimits):
        return value
    given: dict[str, object] = {}
    for part in str(value).split(","):
        name, equals, text = (each.strip() for each in part.partition("="))
        name = name.replace("_", "-")
        if not part.strip():
            continue
        if name not in NAMES or not equals:
            raise ValueError(f"must be NAME=VALUE between commas, of {', '.join(NAMES)}")
        if name in given:
            raise ValueError(f"must have {name} once")
        given[name] = _value(name, text)
    return _checked({name.replace("-", "_"): each for name, each in given.items()})


def _value(name: str, text: str) -> object:
    if name == "models":
        return text.split("+")
    if name in ("priority", "default-priority"):
        return text
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise ValueError(f"must have a whole number for {name}, not {text[:60]!r}")
    return int(text)


def _checked(given: dict[str, object]) -> CallerLimits:
    if not given:
        return NO_LIMITS
    try:
        return _LIMITS.validate_json(to_json(given))
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        name = str(finding["loc"][0]).replace("_", "-")
        raise ValueError(f"{name} {requirement(finding)}") from None
