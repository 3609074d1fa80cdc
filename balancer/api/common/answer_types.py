"""How models are listed, in OpenAI's words and in Anthropic's, as types."""

from typing import Literal

from typing_extensions import TypedDict

from ....shared.inference import Count
from ....shared.messages import Issue
from ....shared.reports.model_info import Task
from ...fleet.view import ModelStatus


class ModelMeta(TypedDict):
    """What llama-server says about a model: tokens of a context, parameters, bytes."""

    n_ctx: int
    n_params: int
    size: int


class OpenAIModel(TypedDict):
    """A model that requests may name; `created` is in Unix seconds.

    Requests for a model that is `loading`, or that went a short while ago, wait in the queue.
    `progress` is the share of loading that is done, from 0 to 1, where that is known; `issues` say
    why it is not loaded, or not by as many agents as it should be.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    tasks: tuple[Task, ...]
    status: ModelStatus
    progress: float | None
    issues: tuple[Issue, ...]
    context_length: int
    max_model_len: int
    meta: ModelMeta


class OpenAIModels(TypedDict):
    """All models that are known."""

    object: Literal["list"]
    data: list[OpenAIModel]


class AnthropicModel(TypedDict):
    """A model that requests may name; `created_at` is an RFC 3339 time."""

    id: str
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: Count


class AnthropicModels(TypedDict):
    """All models that are known, on one page."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None
