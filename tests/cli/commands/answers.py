"""What a balancer answers."""

from json import dumps
from typing import Any

from tests.client.test_answers import DONE

AGENT: dict[str, Any] = {
    "id": "id-1",
    "name": "box",
    "state": "ready",
    "version": "0.1.0",
    "slots": {"total": 4, "busy": 1},
    "model": {"name": "m", "kernels": "all"},
    "models": [{"name": "m", "state": "ready"}],
    "issues": [{"code": "disk_full", "message": "the disk is full", "hint": "make room"}],
    "connected_seconds": 61.0,
}
READY = {"ready": True, "slots": {"total": 4, "busy": 0}}
SNAPSHOT = {"agents": [AGENT], "requests": [], "queue": {"depth": 3, "limit": 9}}
ANSWER = DONE | {"id": "r", "text": "yes"}


def event(name: str, data: object, id: str = "1") -> bytes:
    """A server-sent event."""
    return f"event: {name}\nid: {id}\ndata: {dumps(data)}\n\n".encode()


def line(**fields: Any) -> bytes:
    """A line of a streamed answer."""
    return dumps({"id": "r"} | fields).encode() + b"\n"


def token(text: str, kind: str = "content") -> bytes:
    """A token of a streamed answer."""
    return line(event="token", kind=kind, text=text)


END = dumps(DONE).encode() + b"\n"
