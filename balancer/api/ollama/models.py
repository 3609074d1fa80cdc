"""The fleet's models in Ollama's format, and the lookup of a model by Ollama's names."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints, TypeAdapter
from typing_extensions import TypedDict

from ....shared.errors import InvalidRequest
from ....shared.inference import Count
from ....shared.models.assignments import HOST
from ....shared.queries import TokenizerDescription
from ....shared.reports.model_info import ModelInfo
from ....shared.strict import STRICT
from ...fleet.view import ModelView
from ..fields.field_table import FieldNotes, FieldTable
from . import fields


class OllamaDetails(TypedDict):
    """The details of a model. The quantization is empty if the model's file does not name it."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(TypedDict):
    """A known model. The digest is computed from the name and the fingerprint."""

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
    """A model that an agent has loaded. It stays loaded until the desired state changes.

    `size_vram` is its size in the memory of devices other than the CPU.
    """

    name: str
    model: str
    size: Count
    size_vram: Count
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


API_VERSION = "0.12.11"
"""The version of Ollama whose API this is. Clients read it to know which fields they may send."""

LATEST = ":latest"
FOR_EVER = "9999-12-31T23:59:59Z"

_UNITS = ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 2))

Name = Annotated[str, StringConstraints(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShowBody:
    __pydantic_config__ = STRICT

    model: Name | None = None
    name: Annotated[Name | None, Field(deprecated=True)] = None


SHOW_FIELDS = FieldTable(TypeAdapter(_ShowBody), fields.SHOW)


def parse_show(body: bytes, notes: FieldNotes | None = None) -> str:
    """Return the model name in the body of `/api/show`.

    `name` is an older name of the field `model`.
    """
    parsed = SHOW_FIELDS.parsed(body, notes)
    if (name := parsed.model or parsed.name) is None:
        raise InvalidRequest("`model` is missing", field="model")
    return name


def served_name(asked: str, is_known: Callable[[str], bool]) -> str:
    """Return the name of the fleet's model that a client means by `asked`; clients add
    `:latest`."""
    bare = asked.removesuffix(LATEST)
    return bare if bare and not is_known(asked) else asked


def digest_of(info: ModelInfo) -> str:
    """Return 64 hexadecimal digits, which differ for each name and each fingerprint."""
    return hashlib.sha256(f"{info.name}\n{info.fingerprint or ''}".encode()).hexdigest()


def listed(models: Iterable[ModelView], modified_at: str) -> list[OllamaModel]:
    """Return the models in the form of `/api/tags`."""
    return [
        {
            "name": model.info.name,
            "model": model.info.name,
            "modified_at": modified_at,
            "size": model.info.size_bytes,
            "digest": digest_of(model.info),
            "details": details_of(model.info),
        }
        for model in models
    ]


def running(models: Iterable[ModelView]) -> list[OllamaRunning]:
    """Return the models that an agent has loaded, in the form of `/api/ps`."""
    return [
        {
            "name": model.info.name,
            "model": model.info.name,
            "size": model.info.size_bytes,
            "size_vram": sum(part.bytes for part in model.info.memory if part.device != HOST),
            "digest": digest_of(model.info),
            "details": details_of(model.info),
            "expires_at": FOR_EVER,
            "context_length": model.info.context_size,
        }
        for model in models
        if model.status == "loaded"
    ]


def described(
    info: ModelInfo, tokenizer: TokenizerDescription | None, modified_at: str
) -> OllamaDescription:
    """Return the model in the form of `/api/show`; `tokenizer` is known if an agent answered."""
    template = (tokenizer.chat_template if tokenizer else None) or ""
    family = info.architecture
    return {
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": details_of(info),
        "model_info": {
            "general.architecture": family,
            "general.parameter_count": info.parameters,
            f"{family}.context_length": info.context_size,
        },
        "capabilities": capabilities(info, template),
        "modified_at": modified_at,
    }


def capabilities(info: ModelInfo, template: str) -> list[str]:
    """Return the abilities of the model.

    As in Ollama, the model's template shows if it supports tools and thinking.
    """
    if "generate" not in info.tasks:
        return ["embedding"] if "embed" in info.tasks else []
    found = ["completion", *(["vision"] if "vision" in info.tasks else [])]
    if "tools" in template:
        found.append("tools")
    if "think" in template or "reasoning" in template:
        found.append("thinking")
    return found


def details_of(info: ModelInfo) -> OllamaDetails:
    """Return the details of a model, as agents report them."""
    families = [info.architecture] if info.architecture else []
    return {
        "parent_model": "",
        "format": "gguf",
        "family": info.architecture,
        "families": families,
        "parameter_size": _short(info.parameters),
        "quantization_level": info.quantization,
    }


def _short(count: int) -> str:
    """Return a number of parameters in short form, such as `7.6B`."""
    for unit, letter, places in _UNITS:
        if count >= unit:
            return f"{count / unit:.{places}f}{letter}"
    return str(count) if count else ""
