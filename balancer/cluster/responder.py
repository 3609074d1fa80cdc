"""Answers the questions of other balancers."""

import time
from collections.abc import Callable
from itertools import islice
from typing import cast, get_args

from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.view import RequestView
from ..history.endings import latest
from ..history.history_task import HistoryTask
from ..management.answer_types import ListedRequest
from ..management.request_filter import RequestFilter
from ..management.serializers import listed_json, request_json
from ..management.throughput import MIN_SECONDS, Meter, Throughput
from ..store.records import EndingFilter
from . import answers
from .answers import (
    SUMMED,
    AboutFleet,
    AboutHistory,
    AboutMetrics,
    AboutRequest,
    CancelAnswer,
    EndedAnswer,
    FleetAnswer,
    HistoryAnswer,
    RequestsAnswer,
    What,
)

FORGOTTEN = 5.0
"""Seconds without questions after which rates are stale, since they are measured no longer."""


class Rates:
    """Tokens per second since the last question of another balancer.

    They are measured only while other balancers ask.
    """

    def __init__(self, runtime: FleetRuntime, clock: Callable[[], float]) -> None:
        self._runtime = runtime
        self._clock = clock
        self._meter: Meter | None = None
        self._revision = 0
        self._measured_at = 0.0
        self._last = Throughput()

    def measure(self) -> Throughput:
        """Return the rates of the last second or so; empty at first."""
        now = self._clock()
        if self._meter is None or now - self._measured_at > FORGOTTEN:
            view = self._runtime.views.view(max_requests=0)
            self._meter = Meter(view.agents, view.tokens_total, now)
            self._last = Throughput()
        elif now - self._measured_at < MIN_SECONDS:
            return self._last
        else:
            self._last = self._measured(self._meter, now)
        self._measured_at, self._revision = now, self._runtime.views.revision
        return self._last

    def _measured(self, meter: Meter, now: float) -> Throughput:
        change = self._runtime.views.changes_since(self._revision)
        counts = self._runtime.views.tokens_since(self._revision)
        left = () if change is None else change.agents_left
        return meter.measure(counts, left, self._runtime.views.totals().tokens_total, now)


Render = Callable[[str], tuple[bytes, str]]
"""Writes the metrics in the format of an `Accept` header: the text, and its type."""


def no_metrics(_accept: str) -> tuple[bytes, str]:
    """Return no metrics."""
    return b"", "text/plain"


class Responder:
    """Answers the questions of other balancers for this one."""

    def __init__(
        self,
        runtime: FleetRuntime,
        render: Render = no_metrics,
        history: HistoryTask | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime = runtime
        self._render = render
        self._history = history or HistoryTask()
        self._rates = Rates(runtime, clock)
        self._wall_clock = wall_clock

    def respond(self, what: str, about: str) -> bytes | None:
        """Return the answer; `None` if this version does not know the question."""
        if what not in get_args(What):
            return None
        answer = {
            "fleet": self._fleet,
            "requests": self._requests,
            "request": self._request,
            "cancel": self._cancel,
            "metrics": self._metrics,
            "ended": self._ended,
            "history": self._steps,
        }[what](about)
        return None if answer is None else answer.encode()

    def _fleet(self, about: str) -> str | None:
        if (asked := answers.read(AboutFleet, about)) is None:
            return None
        runtime, rates = self._runtime, self._rates.measure()
        totals = runtime.views.totals()
        oldest = islice(runtime.views.requests(), asked["limit"])
        sums = {found.figure.summed: found.of(totals) for found in SUMMED}
        answer = FleetAnswer(
            busy=dict(runtime.views.slots_taken()),
            tokens_per_second=rates.total,
            rates=dict(rates.agents),
            requests=[request_json(each, runtime.views.position(each.id)) for each in oldest],
        )
        return answers.written(FleetAnswer, cast(FleetAnswer, {**sums, **answer}))

    def _requests(self, about: str) -> str | None:
        if (chosen := answers.read(RequestFilter, about)) is None:
            return None
        found = [self._listed(each) for each in chosen.choose(self._runtime.views.requests())]
        return self._found(found)

    def _request(self, about: str) -> str | None:
        if (asked := answers.read(AboutRequest, about)) is None:
            return None
        found = self._runtime.views.request(asked["id"])
        return self._found([] if found is None else [self._listed(found)])

    def _found(self, requests: list[ListedRequest]) -> str:
        total = self._runtime.views.totals().num_requests
        return answers.written(RequestsAnswer, RequestsAnswer(requests=requests, total=total))

    def _listed(self, request: RequestView) -> ListedRequest:
        waits = request.state == "queued"
        waiting = self._runtime.views.waiting(request.id) if waits else None
        return listed_json(request, waiting, self._wall_clock())

    def _metrics(self, about: str) -> str | None:
        if (asked := answers.read(AboutMetrics, about)) is None:
            return None
        return self._render(asked["accept"])[0].decode()

    def _cancel(self, about: str) -> str | None:
        if (asked := answers.read(AboutRequest, about)) is None:
            return None
        answer = CancelAnswer(is_cancelled=bool(self._runtime.cancel([asked["id"]])))
        return answers.written(CancelAnswer, answer)

    def _ended(self, about: str) -> str | None:
        if (criteria := answers.read(EndingFilter, about)) is None:
            return None
        unwritten = self._history.unwritten_endings()
        answer = EndedAnswer(requests=latest(unwritten, criteria), total=len(unwritten))
        return answers.written(EndedAnswer, answer)

    def _steps(self, about: str) -> str | None:
        if (asked := answers.read(AboutHistory, about)) is None:
            return None
        steps = [each for each in self._history.unwritten_steps() if each.at >= asked["since"]]
        answer = HistoryAnswer(source=self._history.run_id, steps=steps)
        return answers.written(HistoryAnswer, answer)
