"""Protocol 1, which version 0.1.0 speaks, stays what it is: it is compared with a record of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from arriero.shared.messages import (
    decode_from_agent,
    decode_from_balancer,
    encode_from_agent,
    encode_from_balancer,
)
from arriero.shared.since import Since
from tests.shared.recorded_protocol import (
    Side,
    frames,
    of_version,
    present_frames,
    present_schema,
    schema,
)

SIDES: tuple[Side, Side] = ("agent", "balancer")

WHAT_TO_DO = """
Agents and balancers of 0.1.0 speak protocol 1 as tests/shared/protocol_1 has it, and refuse what
they do not know. So leave its fields and their bounds as they are, add a field that comes later as
`name: Annotated[T | None, Since(n)] = None` (shared/since.py), and raise PROTOCOL_VERSION to n.
As long as 0.1.0 is not released, record protocol 1 again instead:
.venv/bin/python -m tests.shared.recorded_protocol"""


def encoded_again(side: Side, frame: str) -> str:
    if side == "agent":
        return encode_from_agent(decode_from_agent(frame)).decode()
    return encode_from_balancer(decode_from_balancer(frame)).decode()


@pytest.mark.parametrize("side", SIDES)
def test_fields_and_bounds_are_as_recorded(side: Side) -> None:
    recorded, present = schema(side), present_schema(side)
    changed = [
        name for name in recorded["$defs"] if present["$defs"].get(name) != recorded["$defs"][name]
    ]
    assert not changed, f"the protocol of these has changed: {', '.join(changed)}.{WHAT_TO_DO}"
    assert present == recorded, f"there are other kinds of messages.{WHAT_TO_DO}"


@pytest.mark.parametrize("side", SIDES)
def test_messages_are_written_as_recorded(side: Side) -> None:
    for present, recorded in zip(present_frames(side), frames(side), strict=True):
        assert json.loads(present) == json.loads(recorded), WHAT_TO_DO


@pytest.mark.parametrize("side", SIDES)
def test_recorded_frames_are_read_and_written_again(side: Side) -> None:
    for frame in frames(side):
        assert json.loads(encoded_again(side, frame)) == json.loads(frame), WHAT_TO_DO


@pytest.mark.parametrize("side", SIDES)
def test_each_field_is_in_a_recorded_frame(side: Side) -> None:
    """Else nobody sees how it is written: complete tests/shared/protocol_messages.py."""
    defined = {
        name for each in schema(side)["$defs"].values() for name in each.get("properties", ())
    }
    assert defined - set(names_in([json.loads(frame) for frame in frames(side)])) == set()


def names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from names_in(each)


@dataclass(frozen=True, kw_only=True)
class Paint:
    colour: str
    gloss: Annotated[int | None, Since(2)] = None


def test_a_field_that_came_later_is_no_part_of_the_version_before() -> None:
    whole = TypeAdapter(Paint).json_schema()
    assert [*of_version(whole, 1)["properties"]] == ["colour"]
    assert [*of_version(whole, 2)["properties"]] == ["colour", "gloss"]
