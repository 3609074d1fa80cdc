"""The fields of a native body that are set; `null` is the same as an absent field."""

from typing import Any

from pydantic_core import from_json

from ....shared.errors import InvalidRequest


def body_fields(body: bytes) -> dict[str, Any]:
    """The members of the JSON object `body` that are not null. Raises `InvalidRequest`."""
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequest("the body must be a JSON object")
    return {name: value for name, value in raw.items() if value is not None}


def listed(value: object) -> object:
    """Wraps a single text or a single list of token ids in a list; returns anything else as is."""
    is_ids = isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
    return [value] if isinstance(value, str) or is_ids else value
