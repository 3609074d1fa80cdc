"""What streams say while their request waits, and from when on.

The first word of it begins the response: an error that comes later is an event, and no HTTP status
any more. So it comes late enough for errors that come at once, and early enough for proxies that
cut silent connections.
"""

from ....shared.inference import Waiting

EVENTS_AFTER = 0.5
"""Seconds after which native clients are told, in `waiting` events."""

COMMENTS_AFTER = 5.0
"""Seconds after which clients of other APIs are told, in comments that they do not read."""


def events_after(is_streamed: bool) -> float | None:
    """From when on a native client is told; an answer in one piece says nothing before its end."""
    return EVENTS_AFTER if is_streamed else None


def comments_after(is_streamed: bool) -> float | None:
    """Likewise of a client of another API."""
    return COMMENTS_AFTER if is_streamed else None


def comment(waiting: Waiting) -> bytes:
    """A comment in a stream of server-sent events: `: waiting position=3 for=slot`."""
    left = "" if waiting.seconds_left is None else f" seconds_left={waiting.seconds_left:g}"
    return f": waiting position={waiting.position} for={waiting.what}{left}\n\n".encode()
