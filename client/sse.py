"""Server-sent events, as in WHATWG's HTML standard."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event; `id` is the last id so far, possibly of an earlier event."""

    name: str
    data: str
    id: str | None


class SseParser:
    """Parses lines into events."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def line(self, line: str) -> ServerSentEvent | None:
        """Take a line without its end; return the event that the line completes, if any."""
        if line:
            self._field(line)
            return None
        name, data = self._name, self._data
        self._name, self._data = "", []
        return ServerSentEvent(name or "message", "\n".join(data), self._id) if data else None

    def _field(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id":
                self._id = value
            case _:
                pass  # a comment, or a field that nobody here needs
