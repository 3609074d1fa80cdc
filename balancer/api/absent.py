"""What clients look for and is not here, with the reason; anything else is simply not found."""

from collections.abc import Mapping

from ...shared.errors import NotFound, NotSupported, RequestError

_NO_SOUND = "{path}: no sound is spoken or transcribed here; models answer with text"

_MISSING: Mapping[str, str] = {
    "/v1/realtime": "{path}: there are no voice sessions here; /v1/responses answers with text",
    "/v1/audio": _NO_SOUND,
    "/v1/images": "{path}: no images are drawn or edited here; models answer with text",
}
"""Of OpenAI's API, by the beginning of the path."""

_UNSUPPORTED: Mapping[str, str] = {
    "/api/pull": "models are not pulled by clients",
    "/api/push": "models are not pushed by clients",
    "/api/create": "models are not created by clients",
    "/api/copy": "models are not copied by clients",
    "/api/delete": "models are not deleted by clients",
    "/api/blobs": "models are not uploaded by clients",
}
"""Of Ollama's API, likewise."""

_DESIRED_STATE = (
    "an operator sets the desired state (`arriero apply`, or PUT /api/v1/desired-state on the "
    "management port), and agents fetch what it names; /api/tags lists what is served"
)


def absent(path: str) -> RequestError:
    """The error for a path where nothing is."""
    shown = path[:200]
    if (sentence := _reason(_UNSUPPORTED, path)) is not None:
        return NotSupported(f"{shown}: {sentence}; {_DESIRED_STATE}")
    sentence = _reason(_MISSING, path) or "there is nothing at {path}"
    return NotFound(sentence.format(path=shown))


def _reason(reasons: Mapping[str, str], path: str) -> str | None:
    found = (reason for root, reason in reasons.items() if f"{path}/".startswith(f"{root}/"))
    return next(found, None)
