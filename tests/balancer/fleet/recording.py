"""A recorder that keeps what it is told, a peer that keeps what it is sent, a clock set by hand."""

from collections.abc import Sequence

from arriero.balancer.fleet.recorder import Ending, MoveReason, Origin
from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.shared.messages import FromBalancer


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class RecordingRecorder:
    """Everything measured, in order."""

    def __init__(self) -> None:
        self.first_tokens: list[float] = []
        self.gaps: list[float] = []
        self.counts: list[int] = []
        self.origins: list[Origin] = []
        self.moves: list[tuple[MoveReason, Origin]] = []
        self.endings: list[Ending] = []

    def first_token(self, seconds: float, origin: Origin) -> None:
        self.first_tokens.append(seconds)

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        self.gaps += gaps

    def tokens(self, count: int, origin: Origin) -> None:
        self.counts.append(count)
        self.origins.append(origin)

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        self.moves.append((reason, origin))

    def ended(self, ending: Ending) -> None:
        self.endings.append(ending)


class RecordingPeer:
    """An agent's socket that remembers."""

    def __init__(self) -> None:
        self.sent: list[FromBalancer] = []
        self.reason: str | None = None

    def backlog(self) -> AgentBacklog:
        return AgentBacklog(num_messages=1, num_bytes=10)

    def send(self, message: FromBalancer) -> None:
        self.sent.append(message)

    def disconnect(self, reason: str) -> None:
        self.reason = reason
