"""The error hierarchy in Ollama's format."""

from ....shared.errors import ModelNotFound, RequestError
from .answer_types import OllamaError


def ollama_error(error: RequestError) -> OllamaError:
    """The body of an error response, and the last line of a stream that breaks off.

    Clients look for "not found" where a model is missing.
    """
    is_missing = isinstance(error, ModelNotFound)
    return {"error": f"model not found: {error.message}" if is_missing else error.message}
