"""What OpenAI's reasoning effort and verbosity mean to a model: variables of its template."""

from collections.abc import Mapping
from typing import Any, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

Verbosity = Literal["low", "medium", "high"]


def reasoning_fields(
    effort: Effort | None,
    variables: Mapping[str, Any] | None = None,
    *,
    verbosity: Verbosity | None = None,
) -> dict[str, Any]:
    """The neutral request's fields: `none` turns reasoning off, any other effort on.

    Some templates know degrees, so they are told of it as `reasoning_effort`, and of the
    `verbosity` under its own name; what the client itself hands to the template goes before.
    """
    told: dict[str, Any] = {} if effort in (None, "none") else {"reasoning_effort": effort}
    if verbosity is not None:
        told["verbosity"] = verbosity
    return {
        "thinking": None if effort is None else effort != "none",
        "chat_template_kwargs": {**told, **(variables or {})} or None,
    }
