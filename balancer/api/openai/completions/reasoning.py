"""Maps OpenAI's reasoning effort and verbosity to chat template variables."""

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

    Templates that support levels get the effort as `reasoning_effort`, and `verbosity` under its
    own name. Template variables that the client sets itself take precedence.
    """
    given: dict[str, Any] = {} if effort in (None, "none") else {"reasoning_effort": effort}
    if verbosity is not None:
        given["verbosity"] = verbosity
    return {
        "thinking": None if effort is None else effort != "none",
        "chat_template_kwargs": {**given, **(variables or {})} or None,
    }
