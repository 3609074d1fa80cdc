"""Maps OpenAI's reasoning effort and verbosity to chat template variables.

Clients send reasoning back under the names of several servers; the model sees all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .....shared.strict import STRICT

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

Json = dict[str, Any]

NAMES = ("reasoning", "thinking")
"""Other servers' names for the `reasoning_content` of a message."""

FIELDS = tuple(f"messages[].{name}" for name in NAMES)

Verbosity = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingSwitch:
    """The field `thinking` of Anthropic's API, which GLM's and DeepSeek's APIs also have."""

    __pydantic_config__ = STRICT

    type: Literal["enabled", "disabled", "adaptive", "auto"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSwitch:
    """The field `reasoning` of OpenRouter's API, which turns reasoning on or off."""

    __pydantic_config__ = STRICT

    effort: Effort | None = None
    enabled: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The fields by which APIs turn reasoning on and off in chats. Bodies inherit from this class.

    The class has no slots, because a class cannot inherit slots from two classes.
    """

    __pydantic_config__ = STRICT

    reasoning_effort: Effort | None = None
    reasoning: ReasoningSwitch | None = None
    enable_thinking: bool | None = None
    thinking: bool | ThinkingSwitch | None = None
    think: bool | Effort | None = None

    @property
    def effort(self) -> Effort | None:
        """Return the reasoning effort; `none` if any field turns reasoning off.

        If fields only turn reasoning on, the effort is the template's default.
        """
        given = [self.reasoning_effort, self.reasoning and self.reasoning.effort, self.think]
        efforts = [each for each in given if isinstance(each, str)]
        if "none" in efforts or False in self._switched():
            return "none"
        return efforts[0] if efforts else None

    @property
    def is_on(self) -> bool:
        """Return whether a field turns reasoning on."""
        return True in self._switched()

    def _switched(self) -> tuple[bool | None, ...]:
        thinking = self.thinking
        if isinstance(thinking, ThinkingSwitch):
            thinking = {"enabled": True, "disabled": False}.get(thinking.type)
        think = self.think if isinstance(self.think, bool) else None
        enabled = self.reasoning.enabled if self.reasoning else None
        return (self.enable_thinking, thinking, think, enabled)


_VARIABLES = ("enable_thinking", "thinking")
"""Template variables by which clients turn reasoning on and off."""


def reasoning_fields(
    effort: Effort | None,
    variables: Mapping[str, Any] | None = None,
    *,
    is_on: bool = False,
    verbosity: Verbosity | None = None,
) -> dict[str, Any]:
    """Return the fields of the neutral request. `none` turns reasoning off, any other effort on.

    Templates with levels get the effort as `reasoning_effort`, and `verbosity` under its own name.
    Template variables that the client sets take precedence. The variable that turns reasoning off
    differs between models, so `enable_thinking` is translated for all of them.
    """
    given: dict[str, Any] = {} if effort in (None, "none") else {"reasoning_effort": effort}
    if verbosity is not None:
        given["verbosity"] = verbosity
    switches = [
        each for name in _VARIABLES if isinstance(each := (variables or {}).get(name), bool)
    ]
    thinking = effort != "none" if effort is not None else True if is_on else None
    return {
        "thinking": all(switches) if switches else thinking,
        "chat_template_kwargs": {**given, **(variables or {})} or None,
    }


def with_reasoning(message: Json) -> Json:
    """Return a message of a body with its reasoning as `reasoning_content`, under any name."""
    if message.get("role") != "assistant":
        return message
    texts = [message[name] for name in NAMES if isinstance(message.get(name), str)]
    rest = {name: value for name, value in message.items() if not _is_reasoning(name, value)}
    if texts and not rest.get("reasoning_content"):
        rest["reasoning_content"] = next(filter(None, texts), None)
    return rest


def _is_reasoning(name: str, value: object) -> bool:
    return name in NAMES and isinstance(value, str)
