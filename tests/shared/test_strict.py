"""What strict means."""

from dataclasses import dataclass

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.strict import STRICT


@dataclass
class Sample:
    __pydantic_config__ = STRICT
    count: int = 0
    rate: float = 0.0


SAMPLE = TypeAdapter(Sample)


def test_what_is_right() -> None:
    assert SAMPLE.validate_json('{"count": 1, "rate": 2}') == Sample(1, 2.0)


@pytest.mark.parametrize(
    "body",
    ['{"counts": 1}', '{"count": "1"}', '{"count": 1.0}', '{"rate": NaN}', '{"rate": 1e999}'],
)
def test_what_is_wrong(body: str) -> None:
    with pytest.raises(ValidationError):
        SAMPLE.validate_json(body)
