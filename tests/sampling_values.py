"""Values of sampling fields, so that tests go through all fields without a list of their own."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from arriero.shared.sampling import SAMPLERS, SamplingChoices

_CHOICES = TypeAdapter(SamplingChoices)
_TRIED = (0.25, 3, 2, True, (66,), ("!",), {"65": 5.0}, ("temperature", "top_p"))


def _is_taken(name: str, value: Any) -> bool:
    try:
        _CHOICES.validate_json(TypeAdapter(Any).dump_json({name: value}))
    except ValidationError:
        return False
    return True


VALUES: Mapping[str, tuple[Any, ...]] = {
    name: tuple(value for value in _TRIED if _is_taken(name, value)) for name in SAMPLERS
}
"""Some that each field takes, one of which at least is not the engine's default."""

NUMBERS = tuple(name for name, (value, *_) in VALUES.items() if type(value) in (int, float))
"""The fields whose values are numbers."""
