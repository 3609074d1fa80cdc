"""What OpenAI's effort of reasoning means to a model whose template can turn reasoning on."""

from collections.abc import Mapping
from typing import Any, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def reasoning_fields(
    effort: Effort | None, variables: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The neutral request's fields: `none` turns reasoning off, any other effort on.

    Some templates know degrees, so they are told of it as `reasoning_effort`; what the client
    itself hands to the template goes before.
    """
    told = {} if effort in (None, "none") else {"reasoning_effort": effort}
    return {
        "thinking": None if effort is None else effort != "none",
        "chat_template_kwargs": {**told, **(variables or {})} or None,
    }
