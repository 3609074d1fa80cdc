"""What Ollama's API answers, as types; the OpenAPI document is made of them."""

from collections.abc import Iterable
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from ....shared.inference import Count
from ..common.log_probs import TokenLogProb

DoneReason = Literal["stop", "length", "load"]


class OllamaError(TypedDict):
    """An error."""

    error: str


class OllamaFunction(TypedDict):
    """What a call calls; its `index` among the calls of the answer."""

    index: Count
    name: str
    arguments: dict[str, Any]


class OllamaCall(TypedDict):
    """A call of a tool."""

    id: str
    function: OllamaFunction


class OllamaMessage(TypedDict):
    """A message, or a part of it."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[OllamaCall]]


class OllamaFigures(TypedDict, total=False):
    """How an answer ended. Durations in nanoseconds; `load_duration` is the wait for a slot."""

    done_reason: DoneReason
    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count
    prompt_eval_duration: Count
    eval_count: Count
    eval_duration: Count


class OllamaHead(TypedDict):
    """What each line of an answer has."""

    model: str
    created_at: str
    done: bool


class OllamaChat(OllamaHead, OllamaFigures):
    """An answer of `/api/chat`, or a part of it; the figures come with `done`."""

    message: OllamaMessage
    logprobs: NotRequired[list[TokenLogProb]]


class OllamaText(OllamaHead, OllamaFigures):
    """An answer of `/api/generate`, or a part of it; the figures come with `done`."""

    response: str
    thinking: NotRequired[str]
    logprobs: NotRequired[list[TokenLogProb]]


class OllamaVectors(TypedDict):
    """A vector for each input; durations in nanoseconds."""

    model: str
    embeddings: Iterable[list[float]]
    total_duration: Count
    load_duration: Count
    prompt_eval_count: Count


class OllamaVector(TypedDict):
    """One vector."""

    embedding: list[float]


class OllamaDetails(TypedDict):
    """What is known about a model. Agents do not tell the quantization."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(TypedDict):
    """A known model. The digest stands for the name and what the agents' models have in common."""

    name: str
    model: str
    modified_at: str
    size: Count
    digest: str
    details: OllamaDetails


class OllamaModels(TypedDict):
    """All known models."""

    models: list[OllamaModel]


class OllamaRunning(TypedDict):
    """A model that an agent has loaded. It stays loaded until the desired state says otherwise."""

    name: str
    model: str
    size: Count
    digest: str
    details: OllamaDetails
    expires_at: str
    context_length: Count


class OllamaRunningModels(TypedDict):
    """All loaded models."""

    models: list[OllamaRunning]


class OllamaDescription(TypedDict):
    """One model."""

    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: dict[str, str | int]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(TypedDict):
    """The version of Ollama's API that is followed."""

    version: str
