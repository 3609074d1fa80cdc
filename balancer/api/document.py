"""Everything that the inference port serves, as one OpenAPI document."""

from pydantic_core import to_json

from .anthropic import operations as anthropic_api
from .native import operations as native_api
from .ollama import operations as ollama_api
from .openai import operations as openai_api
from .openai.batches import operations as batches_api
from .openai.responses import operations as responses_api
from .openapi.document import Json, document
from .vllm import operations as vllm_api

_APIS = (
    *(native_api, openai_api, responses_api, batches_api, vllm_api, anthropic_api),
    ollama_api,
)


def inference_document(version: str) -> Json:
    """The document, as JSON values; `version` is the balancer's."""
    return document(
        title="Arriero, inference",
        version=version,
        operations=[operation for api in _APIS for operation in api.OPERATIONS],
    )


def inference_json(version: str) -> bytes:
    """The document as it is served."""
    return to_json(inference_document(version))
