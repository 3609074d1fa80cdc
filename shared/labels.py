"""Labels of an agent: key-value pairs by which models and access keys choose agents."""

from typing import Annotated

from pydantic import Field

from .strict import at_most

MAX_LABELS = 64
_Text = Annotated[str, Field(max_length=256)]
Labels = Annotated[dict[_Text, _Text], Field(max_length=MAX_LABELS), at_most(MAX_LABELS)]
