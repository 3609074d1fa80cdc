"""Collects one request's events, for answers without streaming."""

from collections.abc import Sequence
from typing import Any, assert_never

from pydantic_core import from_json

from ....shared.inference import (
    Begun,
    Done,
    EndEvent,
    Event,
    Failed,
    Notice,
    Reading,
    Token,
    TokenKind,
    TokenLogProbs,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from .log_probs import PackedLogProbs


class Accumulator:
    """Collects the events of one request; text is kept by kind."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.calls: list[ToolCall] = []
        self._texts: dict[TokenKind, list[str]] = {}
        self._log_probs: dict[TokenKind, PackedLogProbs] = {}
        self._end: EndEvent | None = None

    def add(self, event: Event) -> None:
        """Add the next event of the request. Raises `RuntimeError` after the end."""
        if self._end is not None:
            raise RuntimeError(f"{event} came after the end")
        match event:
            case Token():
                self._texts.setdefault(event.kind, []).append(event.text)
                if event.log_probs:
                    self._log_probs.setdefault(event.kind, PackedLogProbs()).add(event.log_probs)
            case Waiting() | Reading() | ToolCallStarted() | Begun():
                pass  # what is gathered is the whole call, and the end counts the prompt
            case ToolCall():
                self.calls.append(event)
            case Notice():
                self.notices.append(event)
            case Done() | Failed():
                self._end = event
            case _:
                assert_never(event)

    def text(self, kind: TokenKind = "content") -> str:
        """Return all text of `kind` so far."""
        return "".join(self._texts.get(kind, ()))

    def log_probs(self, kind: TokenKind = "content") -> Sequence[TokenLogProbs]:
        """Return the log-probabilities of the tokens of `kind` so far, if requested."""
        return self._log_probs.get(kind) or ()

    @property
    def end(self) -> EndEvent:
        """Return the last event. Raises `RuntimeError` before the end."""
        if self._end is None:
            raise RuntimeError("the request has not ended")
        return self._end

    def done(self) -> Done:
        """Return the end of a successful request; raise the error of a failed request."""
        if isinstance(self.end, Failed):
            raise self.end.error
        return self.end


def arguments_of(call: str) -> dict[str, Any]:
    """Return the arguments of a call, which a model wrote.

    If the call was cut off, only the complete arguments are returned.
    """
    try:
        value = from_json(call, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
