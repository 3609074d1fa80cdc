"""Variables for the model's chat template (`chat_template_kwargs`)."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from .strict import at_most

MAX_VARIABLES = 64

RESERVED = frozenset(
    {
        *("messages", "tools", "add_generation_prompt", "continue_final_message"),
        *("bos_token", "eos_token", "loop", "self"),
        *("raise_exception", "strftime_now", "namespace", "range", "dict", "cycler", "joiner"),
    }
)
"""Names that templates define, or that other fields of the request set."""

_NAME = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)


def _free_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("must be named with letters, digits and _, and begin with a letter")
    if name in RESERVED:
        raise ValueError("must not be a name that templates define themselves")
    return name


TemplateVariables = Annotated[
    dict[Annotated[str, AfterValidator(_free_name)], Any],
    Field(max_length=MAX_VARIABLES),
    at_most(MAX_VARIABLES),
]
"""JSON values by variable name."""
