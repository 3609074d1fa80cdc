"""What strict means; of lists and maps, that what is wrong is found early, and once."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from arriero.shared.strict import STRICT, ListOf, at_most


@dataclass
class Sample:
    __pydantic_config__ = STRICT
    count: int = 0
    rate: float = 0.0


SAMPLE = TypeAdapter(Sample)

_DAEMONS = ("balancer.daemon", "agent.daemon", "agent.supervision.supervisor")
_IMPORT = """
import sys
from importlib import import_module
from pydantic import TypeAdapter
from arriero.shared.strict import build_schemas, constants
for daemon in sys.argv[1:]:
    import_module(f"arriero.{daemon}")
print([each for each in constants(TypeAdapter) if each.pydantic_complete])
build_schemas()
print([each for each in constants(TypeAdapter) if not each.pydantic_complete])
"""


def test_imports_build_no_schemas() -> None:
    """All of them together take about a second, which a daemon's start would have to wait for."""
    command = (sys.executable, "-P", "-c", _IMPORT, *_DAEMONS)
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n[]\n"


def test_what_is_right() -> None:
    assert SAMPLE.validate_json('{"count": 1, "rate": 2}') == Sample(1, 2.0)


@pytest.mark.parametrize(
    "body",
    ['{"counts": 1}', '{"count": "1"}', '{"count": 1.0}', '{"rate": NaN}', '{"rate": 1e999}'],
)
def test_what_is_wrong(body: str) -> None:
    with pytest.raises(ValidationError):
        SAMPLE.validate_json(body)


@pytest.mark.parametrize("member", ["-1", "{}", '""'])
def test_a_list_of_faults_is_one_finding(member: str) -> None:
    adapter = TypeAdapter(Annotated[ListOf[Annotated[int, Field(ge=0)]], Field(max_length=10)])
    with pytest.raises(ValidationError) as caught:
        adapter.validate_json(f"[{','.join([member] * 10_000)}]", strict=True)
    assert caught.value.error_count() == 1


def test_only_lists_have_a_first_fault() -> None:
    with pytest.raises(TypeError, match="only lists"):
        TypeAdapter(Annotated[int, *ListOf.__metadata__])  # type: ignore[attr-defined]


def test_a_map_that_is_too_long_is_refused_before_its_entries_are_checked() -> None:
    checked = []
    name = Annotated[str, AfterValidator(checked.append)]
    adapter = TypeAdapter(Annotated[dict[name, int], at_most(3)], config=STRICT)  # type: ignore[valid-type]
    with pytest.raises(ValidationError, match="at most 3 items"):
        adapter.validate_json(json.dumps({str(number): "wrong" for number in range(4)}))
    assert checked == []
