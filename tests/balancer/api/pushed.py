"""What a client is sent of an answer whose events are pushed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from aiohttp import web

from arriero.balancer.api.transport.streaming import EventPusher, Render
from arriero.balancer.api.transport.text_frame import FrameOf, no_frame
from arriero.shared.inference import Event


@dataclass
class Client:
    """A connection that takes what is written."""

    written: list[bytes] = field(default_factory=list)
    has_room: bool = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    @property
    def writing_paused(self) -> bool:
        return not self.has_room


def pusher(
    client: Client | None,
    render: Render,
    frame_of: FrameOf = no_frame,
    *,
    is_chunked: bool = True,
) -> EventPusher:
    """What pushes events to `client`; `None` has gone."""
    request = SimpleNamespace(transport=client, protocol=client)
    headers = {"Transfer-Encoding": "chunked"} if is_chunked else {}
    response = SimpleNamespace(headers=headers)
    return EventPusher(
        cast("web.Request", request), cast("web.StreamResponse", response), render, frame_of
    )


def pushed(render: Render, frame_of: FrameOf, events: Iterable[Event]) -> bytes:
    """All that is written for `events`."""
    client = Client()
    pushes = pusher(client, render, frame_of, is_chunked=False)
    for event in events:
        pushes.take(event)
    return b"".join(client.written) + pushes.ending
