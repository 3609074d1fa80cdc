"""Options of a request: thinking, format, effort, tier."""

from dataclasses import dataclass
from typing import Any, Literal

from ....shared.errors import InvalidRequest
from ....shared.inference import (
    PRIORITY_NUMBERS,
    ChatMessage,
    Grammar,
    JsonSchemaGrammar,
    PriorityClass,
    priority_class_of,
)
from ....shared.strict import STRICT

MessageTier = Literal["standard", "priority", "batch"]
"""The class that a request had in the queue."""


Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """JSON that a schema describes."""

    __pydantic_config__ = STRICT

    type: Literal["json_schema"]
    schema: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The answer's format, and the effort that the model should take."""

    __pydantic_config__ = STRICT

    format: Format | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None

    def variables(self) -> Json | None:
        """Return template variables for the effort, under OpenAI's names, which some templates
        know.
        """
        return None if self.effort is None else {"reasoning_effort": self.effort}


def grammar(options: OutputOptions, format: Format | None) -> Grammar | None:
    """Return the grammar of the answer. `format` is the older field for it.

    Raises `InvalidRequest`.
    """
    if None not in (format, options.format) and format != options.format:
        field = "output_format"
        raise InvalidRequest(
            f"`{field}` must be left out, or be the same as `output_config.format`", field=field
        )
    chosen = format or options.format
    return None if chosen is None else JsonSchemaGrammar(type="json_schema", schema=chosen.schema)


Tier = Literal["auto", "standard_only"]
"""`auto` is the class of the caller's key; `standard_only` is never above the default class."""

_TIERS: dict[PriorityClass, MessageTier] = {
    "batch": "batch",
    "default": "standard",
    "interactive": "priority",
}


def priority_of(tier: Tier) -> int | None:
    """Return the neutral priority of a service tier; `None` stands for the default of the key."""
    return None if tier == "auto" else PRIORITY_NUMBERS["default"]


def tier_of(priority: int | None) -> MessageTier:
    """Return Anthropic's name for a priority class."""
    return _TIERS[priority_class_of(priority)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingOptions:
    """Thinking options: whether the model thinks, and whether the answer shows it."""

    __pydantic_config__ = STRICT

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    display: Literal["summarized", "omitted", "updates"] | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether thinking blocks have no text."""
        return self.display == "omitted"


def thinks(options: ThinkingOptions | None, messages: tuple[ChatMessage, ...]) -> bool | None:
    """Return whether the answer to `messages` begins with thinking.

    `None` leaves it to the template.
    """
    if options is None:
        return False
    match options.type:
        case "enabled":
            return True
        case "disabled":
            return False
        case "adaptive":
            return None
        case "between_tools":
            return messages[-1].role == "tool"
