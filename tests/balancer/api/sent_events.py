"""The events in bytes that an `EventRenderer` wrote."""

from typing import Any

from pydantic_core import from_json

from arriero.balancer.api.common.event_stream import EventRenderer, frames
from arriero.shared.inference import Event


def sent_events(renderer: EventRenderer, events: list[Event]) -> list[dict[str, Any]]:
    """What a client reads, the precomputed frames of most tokens included."""
    data = frames(renderer.begin()) + b"".join(map(renderer.write, events))
    found = []
    for frame in data.removesuffix(b"\n\n").split(b"\n\n"):
        name, event = frame.split(b"\n", 1)
        found.append(from_json(event.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found
