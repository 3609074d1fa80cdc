"""The agent's part of a request's trace: preparation, prefill and decode, recorded at its end.

Tracing adds no work to a step. It notes when a request began, was prepared and ended. The
request's end has the seconds of generation, by the engine's clock. Spans have numbers and names,
never any text.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from ...shared.inference import RequestId
from ...shared.messages import Ended, Item, Refused
from ...shared.tracing.span import Attribute, Part, Span
from ...shared.tracing.trace_context import TraceContext, read_traceparent
from ...shared.tracing.tracer import NO_TRACER, Tracer
from ..sequence_id import SequenceId

_SECOND = 1_000_000_000
"""Nanoseconds per second."""


@dataclass(slots=True)
class _Open:
    """A request that has not ended. Times are in nanoseconds since 1970."""

    id: RequestId
    parent: TraceContext
    started: int
    prepared: int | None = None


class RequestSpans:
    """Records the spans of requests at the agent `agent`. `clock` gives nanoseconds since 1970.

    Only requests with a recorded trace are kept, each as long as the request holds its slot.
    """

    def __init__(
        self,
        tracer: Tracer = NO_TRACER,
        agent: str = "",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._agent = agent
        self._clock = clock
        self._open: dict[SequenceId, _Open] = {}

    def __len__(self) -> int:
        """Return the number of open requests."""
        return len(self._open)

    def started(self, id: SequenceId, name: RequestId, traceparent: str | None) -> None:
        """Note the beginning of a request, which is part of the trace `traceparent`."""
        parent = read_traceparent(traceparent)
        if parent is not None and parent.is_sampled:
            self._open[id] = _Open(name, parent, self._clock())

    def prepared(self, id: SequenceId) -> None:
        """Note that the engine has the prompt."""
        if (request := self._open.get(id)) is not None:
            request.prepared = self._clock()

    def ended(self, items: Sequence[Item], released: Iterable[SequenceId]) -> None:
        """Record the spans of the `released` sequences. `items` were sent with the release."""
        for id in released:
            if (request := self._open.pop(id, None)) is not None:
                self._record(request, _end_of(request.id, items))

    def _record(self, request: _Open, end: Ended | Refused | None) -> None:
        context = self._tracer.begin(request.parent)
        if context is None:
            return
        now = self._clock()
        span = Span(
            name="agent generate",
            context=context,
            parent=request.parent,
            start=request.started,
            end=now,
            kind="server",
            attributes={"arriero.agent": self._agent, **_attributes(request.id, end)},
            error=end.error.code if isinstance(end, Refused) else None,
        )
        self._tracer.record(span, _parts(request, end, now))


def _end_of(id: RequestId, items: Sequence[Item]) -> Ended | Refused | None:
    """Return the request's end among `items`; `None` for a request that was discarded."""
    ends = (item for item in items if isinstance(item, Ended | Refused) and item.id == id)
    return next(ends, None)


def _attributes(id: RequestId, end: Ended | Refused | None) -> dict[str, Attribute]:
    common: dict[str, Attribute] = {"arriero.request_id": id}
    match end:
        case None:
            return {**common, "arriero.code": "discarded"}
        case Refused(error=error):
            return {**common, "arriero.code": error.code, "error.type": error.code}
        case Ended(finish_reason=reason, usage=usage):
            return {
                **common,
                "arriero.code": reason,
                "gen_ai.response.finish_reasons": (reason,),
                "gen_ai.usage.input_tokens": usage.prompt_tokens,
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                "gen_ai.usage.output_tokens": usage.completion_tokens,
            }
        case _:
            assert_never(end)


def _parts(request: _Open, end: Ended | Refused | None, now: int) -> list[Part]:
    if request.prepared is None:
        return [Part("preparation", request.started, now)]
    preparation = Part("preparation", request.started, request.prepared)
    seconds = _decode_seconds(end) if isinstance(end, Ended) else 0.0
    first = max(request.prepared, now - round(seconds * _SECOND))
    prefill = Part("prefill", request.prepared, first)
    return [preparation, prefill, Part("decode", first, now)] if seconds else [preparation, prefill]


def _decode_seconds(end: Ended) -> float:
    """Return the seconds of decoding after the first token, which belongs to prefill."""
    rate = end.rates.decode_tokens_per_second
    has_end_token = end.finish_reason != "length" and end.stop_string is None
    num_steps = end.usage.completion_tokens - (0 if has_end_token else 1)
    return max(0, num_steps) / rate if rate else 0.0
