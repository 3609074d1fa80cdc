"""An agent's socket, as the runtime needs it: what it is told, and what waits there."""

from dataclasses import dataclass
from typing import Protocol

from ....shared.messages import FromBalancer


@dataclass(frozen=True, slots=True)
class Backlog:
    """What has not left to agents: messages, and the bytes of large ones on their way."""

    num_messages: int = 0
    num_bytes: int = 0


class Peer(Protocol):
    """An agent's socket. No method waits or raises."""

    def backlog(self) -> Backlog:
        """What waits here; bytes of large messages that came in part count as well."""

    def send(self, message: FromBalancer) -> None:
        """Put a message on the socket, after those before."""

    def disconnect(self, reason: str) -> None:
        """Close the socket when everything sent has left."""
