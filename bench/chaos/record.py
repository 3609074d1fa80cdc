"""What a client saw of one request, and how its answer said that it ended."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["ended", "refused", "broken", "unfinished"]
"""`refused`: no connection. `broken`: the connection ended first. `unfinished`: patience did."""

ANTHROPIC = {
    "overloaded_error": "shutting_down",
    "timeout_error": "queue_timeout",
    "api_error": "agent_lost",
}
"""What stands for several codes there, as the one that faults bring."""


@dataclass(slots=True)
class Record:
    """One request of a client that stayed. Times are seconds of the run's clock.

    `stamps`: when something of the answer came. `said`: the answer's events, folded.
    """

    kind: str
    sent_at: float
    stamps: list[float] = field(default_factory=list)
    ended_at: float = 0.0
    outcome: Outcome = "unfinished"
    status: int = 0
    endings: list[str] = field(default_factory=list)
    said: Any = None
    num_moves: int = 0
    detail: str = ""

    @property
    def errors(self) -> list[str]:
        """Codes of the ends that were errors."""
        return [ending for ending in self.endings if ending != DONE]

    @property
    def silences(self) -> list[tuple[float, float]]:
        """From each sign of life to the next: begin and end."""
        times = [self.sent_at, *self.stamps, self.ended_at]
        return list(itertools.pairwise(times))

    def document(self) -> dict[str, Any]:
        """All of it, for a report."""
        return asdict(self)


DONE = "done"


def endings(events: Iterable[Any]) -> list[str]:
    """How often and with what a stream of any API says that it ended: `DONE` or a code."""
    return [ending for event in events for ending in _endings(event)]


def _endings(event: Any) -> list[str]:
    if not isinstance(event, dict):
        return []
    if (error := _error(event)) is not None:
        return [_code(error)]
    if event.get("event") == "done" or event.get("type") in ("response.completed", "message_stop"):
        return [DONE]
    choices: Sequence[Any] = event.get("choices") or ()
    return [DONE for choice in choices if choice.get("finish_reason")]


def _error(event: dict[str, Any]) -> Any:
    if event.get("type") == "response.failed":
        return event["response"]["error"]
    return event.get("error")


def _code(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    data = error.get("data")
    code = data.get("code") if isinstance(data, dict) else error.get("code")
    return str(code or ANTHROPIC.get(error.get("type", ""), error.get("type", "")))
