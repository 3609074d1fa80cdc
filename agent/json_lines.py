"""The messages of a child process and its parent: JSON, one message per line."""

from typing import Generic, TypeVar

from pydantic import TypeAdapter

Message = TypeVar("Message")


class Lines(Generic[Message]):
    """Messages as lines of JSON."""

    def __init__(self, adapter: TypeAdapter[Message]) -> None:
        self._adapter = adapter

    def encode(self, message: Message) -> bytes:
        """Return `message` as one line."""
        return self._adapter.dump_json(message) + b"\n"

    def decode(self, line: bytes) -> Message:
        """Return the message in `line`. Raises `pydantic.ValidationError`."""
        return self._adapter.validate_json(line)
