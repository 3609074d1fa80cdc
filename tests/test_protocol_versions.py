"""Neighbouring protocol versions: frames of version 7 are read, and answered in its terms."""

import pytest

from arriero.shared.messages import (
    decode_from_agent,
    decode_from_balancer,
    encode_from_agent,
    encode_from_balancer,
)
from tests.shared.recorded_frames import Frame, Side, all_frames, kinds, schema

SIDES: tuple[Side, Side] = ("agent", "balancer")


def encoded_again(frame: Frame) -> bytes:
    """The frame, read and written by the present code."""
    if frame.side == "agent":
        return encode_from_agent(decode_from_agent(frame.text))
    return encode_from_balancer(decode_from_balancer(frame.text))


@pytest.mark.parametrize("side", SIDES)
def test_every_kind_of_message_was_recorded(side: Side) -> None:
    recorded = {frame.type for frame in all_frames() if frame.side == side}
    assert recorded == kinds(side)


@pytest.mark.parametrize("side", SIDES)
def test_version_7_is_read_and_written_as_it_was(side: Side) -> None:
    """An unknown field would end the connection of a peer of version 7."""
    for frame in all_frames():
        if frame.side == side:
            written = Frame(side, encoded_again(frame).decode(), frame.link, frame.during)
            assert written.message == frame.message
            schema(side).validate(written.message)


def test_version_7_refuses_what_it_does_not_know() -> None:
    hello = next(frame for frame in all_frames() if frame.type == "hello").message
    assert not schema("agent").is_valid(hello | {"invented": 1})
    assert not schema("agent").is_valid(hello | {"model": hello["model"] | {"invented": "x"}})
