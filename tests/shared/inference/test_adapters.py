"""How requests choose adapters."""

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.inference.adapters import MAX_ADAPTERS, AdapterChoice, AdapterChoices

CHOICES: TypeAdapter[tuple[AdapterChoice, ...]] = TypeAdapter(AdapterChoices)


def test_a_choice_is_a_name_and_maybe_a_scale() -> None:
    given = CHOICES.validate_json(b'[{"name": "loud"}, {"name": "calm", "scale": -0.5}]')
    assert given == (AdapterChoice(name="loud"), AdapterChoice(name="calm", scale=-0.5))


@pytest.mark.parametrize(
    "wrong",
    [
        b'[{"name": "a:b"}]',
        b'[{"name": ""}]',
        b'[{"name": "a", "scale": 101}]',
        b'[{"name": "a", "scale": "1"}]',
        b'[{"name": "a", "more": 1}]',
    ],
)
def test_what_cannot_be_is_refused(wrong: bytes) -> None:
    with pytest.raises(ValidationError):
        CHOICES.validate_json(wrong)


def test_they_are_bounded() -> None:
    with pytest.raises(ValidationError):
        CHOICES.validate_python([{"name": "a"}] * (MAX_ADAPTERS + 1))
