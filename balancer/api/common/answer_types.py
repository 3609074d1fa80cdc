"""How models are listed, in OpenAI's words and in Anthropic's, as types."""

from typing import Literal

from typing_extensions import TypedDict

from ....shared.inference import Count
from ....shared.messages import Task


class OpenAIModel(TypedDict):
    """A model that is served; `created` in Unix seconds."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tasks: tuple[Task, ...]


class OpenAIModels(TypedDict):
    """All models that are served."""

    object: Literal["list"]
    data: list[OpenAIModel]


class AnthropicModel(TypedDict):
    """A model that is served; `created_at` as RFC 3339 has it."""

    id: str
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: Count


class AnthropicModels(TypedDict):
    """All models that are served, on one page."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None
