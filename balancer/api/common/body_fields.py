"""The fields of a body that ask for something; what cannot be had is refused by name.

`null` means what leaving a field out means.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from ....shared.errors import InvalidRequest


def body_fields(
    body: bytes,
    *,
    refused: Mapping[str, frozenset[bytes]],
    ignored: frozenset[str] = frozenset(),
    served: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The members of the JSON object `body`, without those that are `ignored`.

    `refused` has for a name the values, as JSON, that are let through: they ask for nothing, so the
    member is left out, unless the name is `served`. Raises `InvalidRequest` for any other value.
    """
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequest("the body must be a JSON object")
    given = {}
    for name, value in raw.items():
        if value is None or name in ignored:
            continue
        if name in refused and to_json(value) not in refused[name]:
            raise InvalidRequest(_refusal(name, refused[name], name in served), field=name)
        if name not in refused or name in served:
            given[name] = value
    return given


def _refusal(name: str, let_through: frozenset[bytes], is_served: bool) -> str:
    if not is_served:
        return f"`{name}` is not supported; leave it out"
    return f"`{name}` is not supported but for {', '.join(sorted(map(bytes.decode, let_through)))}"


def listed(value: object) -> object:
    """A single text, or the ids of a single one, as a list of one; anything else as it is."""
    is_ids = isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
    return [value] if isinstance(value, str) or is_ids else value
