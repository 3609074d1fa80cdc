"""Prometheus counters and histograms of requests.

Invariant: no label has values from users' text, so the number of series is bounded. Series of
connected agents are in `fleet_collector`, and disappear with the agents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ....shared.errors import BY_CODE
from ....shared.inference import PRIORITY_CLASSES
from ...fleet.recorder import Ending, MoveReason, Origin
from ...fleet.shares import Shares
from .figure_metrics import Reports, figure_metrics
from .gap_histogram import GapHistogram
from .model_metrics import ModelMetrics

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the histograms' buckets."""

_CODES = ("stop", "length", "tool_calls", "answered", "cancelled", "client_gone", *BY_CODE)
_QUERIES = ("text", "embed", "rank")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_KINDS = ("prompt", "cached", "completion")


# A second series beside each one, which nothing here asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]


class _BetweenTokens(Collector):
    """The times between tokens of all models, summed at each scrape."""

    def __init__(self, models: ModelMetrics) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "arriero_between_tokens_seconds",
            "Time between two tokens of one answer; those of one piece share it.",
        )
        self._models.total_between().add_to(family, [])
        yield family


class _Figures(Collector):
    """Collects the figures of reports, which are requested at each scrape."""

    def __init__(self, kind: type, reports: Callable[[], Reports], labels: tuple[str, ...]) -> None:
        self._kind = kind
        self._reports = reports
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        return figure_metrics(self._kind, self._reports(), labels=self._labels)


class PoolCollector(Collector):
    """Collects the bounded pools of `balancer/fleet/shares.py`, by name."""

    def __init__(self, pools: Mapping[str, Shares[Any]]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        """Return the use, bound, holders and refusals of each pool."""
        used = GaugeMetricFamily(
            "arriero_pool_used",
            "What is held in a pool: bytes, or things in pools whose name says so.",
            labels=["pool"],
        )
        limit = GaugeMetricFamily(
            "arriero_pool_limit", "The most that a pool holds.", labels=["pool"]
        )
        holders = GaugeMetricFamily(
            "arriero_pool_holders",
            "Keys, or addresses without keys, that hold something in a pool.",
            labels=["pool"],
        )
        refusals = CounterMetricFamily(
            "arriero_pool_refusals",
            "What a pool did not hold: its holder had its share, the pool was full, or what was "
            "held was evicted for others.",
            labels=["pool", "why"],
        )
        for name, shares in self._pools.items():
            used.add_metric([name], shares.total)
            limit.add_metric([name], shares.bound)
            holders.add_metric([name], shares.num_holders)
            for why, num in shares.num_refused.items():
                refusals.add_metric([name, why], num)
        yield from (used, limit, holders, refusals)


MAX_CALLERS = 256
"""Maximum callers with series of their own, which are the first names since the start.

Prometheus keeps a series for each name for ever, and keys come and go.
"""

OTHER = "other"
"""The label of all further callers together. No key may have this name."""


class CallerMetrics:
    """Requests and tokens by caller: the name of an access key, or `anonymous`."""

    def __init__(self, registry: CollectorRegistry, *, max_callers: int = MAX_CALLERS) -> None:
        self._max_callers = max_callers
        self._series: dict[str, tuple[Counter, Counter, Counter]] = {}
        """The counters of requests, prompt tokens and completion tokens, by name."""
        self._requests = Counter(
            "arriero_caller_requests",
            "Requests that ended or were refused by the fleet, by caller.",
            ["caller"],
            registry=registry,
        )
        self._tokens = Counter(
            "arriero_caller_tokens",
            "Tokens of requests that ended, by caller.",
            ["caller", "kind"],
            registry=registry,
        )

    def ended(self, ending: Ending) -> None:
        """Count a request that has ended."""
        requests, prompt, completion = self._of(ending.caller.name)
        requests.inc()
        prompt.inc(ending.usage.prompt_tokens)
        completion.inc(ending.usage.completion_tokens)

    def _of(self, name: str) -> tuple[Counter, Counter, Counter]:
        if (series := self._series.get(name)) is not None:
            return series
        if len(self._series) >= self._max_callers and name != OTHER:
            return self._of(OTHER)
        tokens = self._tokens.labels
        series = self._requests.labels(name), tokens(name, "prompt"), tokens(name, "completion")
        self._series[name] = series
        return series


class Metrics:
    """The `Recorder` of the running balancer, with a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._models = ModelMetrics(SECONDS)
        self._callers = CallerMetrics(self.registry)
        self._pools: dict[str, Shares[Any]] = {}
        self.registry.register(PoolCollector(self._pools))
        self._make_times()
        self._make_counts()
        self._make_refusals()
        self._start_at_zero()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    def _make_times(self) -> None:
        self._first_token = self._histogram(
            "first_token", "Time from a request's acceptance to its first token."
        )
        self.registry.register(self._models)
        self.registry.register(_BetweenTokens(self._models))
        self._queue_wait = self._histogram(
            "queue_wait", "Time from acceptance to a slot, of the requests that got one."
        )
        class_wait = Histogram(
            "arriero_queue_class_wait_seconds",
            "Time from acceptance to a slot, of the requests that got one, by priority class.",
            ["priority_class"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._class_wait = {kind: class_wait.labels(kind) for kind in PRIORITY_CLASSES}
        self._duration = self._histogram(
            "request", "Time from acceptance to the end, of the requests that got a slot."
        )

    def _make_counts(self) -> None:
        self._tokens = self._counter(
            "tokens",
            "Tokens: completion as they are delivered, prompt when a request ends; cached ones are "
            "the prompt tokens that were not computed again.",
            "kind",
        )
        # Looked up once, not at every token and end.
        self._completion_tokens = self._tokens.labels("completion")
        self._prompt_tokens = self._tokens.labels("prompt")
        self._cached_tokens = self._tokens.labels("cached")
        self._requests = self._counter(
            "requests",
            "Requests by how they ended: a finish reason, an error's code or client_gone.",
            "code",
        )
        self._moves = self._counter(
            "moves",
            "Requests that left an agent for another: it was lost, fell silent, left them "
            "unanswered, was drained with a deadline, or gave them back; or, of batch requests, "
            "others needed the slot.",
            "reason",
        )
        self._query_inputs = Histogram(
            "arriero_query_inputs",
            "Inputs per query: texts to embed or documents to rank.",
            ["kind"],
            buckets=_SIZES,
            registry=self.registry,
        )

    def _make_refusals(self) -> None:
        self._refusals = self._counter(
            "refusals",
            "Requests refused before they reached the fleet, by path and error's code; "
            "arriero_requests counts them as well.",
            "door",
            "code",
        )
        self._turned_away = self._counter(
            "refused",
            "Callers and agents that were refused for who they are, by door and kind: `no_key`, "
            "`unknown_key`, `ended_key`, `ended_session`, `key_in_url`, `csrf`, `role`, `host`, "
            "`origin`, `certificate`, `handshake`, and of agents `rejected`.",
            "door",
            "kind",
        )
        self._ignored_fields = self._counter(
            "ignored_fields",
            "Fields of requests that were ignored, by path and field; `other` are unknown fields.",
            "door",
            "field",
        )

    def gauge(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """Also export a number. `value` is called at each scrape."""
        gauge = Gauge(f"arriero_{name}", help_text, registry=self.registry)
        gauge.set_function(value)

    def figures(
        self, kind: type, reports: Callable[[], Reports], labels: tuple[str, ...] = ()
    ) -> None:
        """Also export the figures of a kind of report, by the values of `labels`.

        `reports` is called at each scrape.
        """
        self.registry.register(_Figures(kind, reports, labels))

    def pool(self, name: str, shares: Shares[Any]) -> None:
        """Also export use, bound and refusals of a pool, read at each scrape."""
        self._pools[name] = shares

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics and their content type, in the format that `accept` requests."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    # ---- the recorder's side

    def first_token(self, seconds: float, origin: Origin) -> None:
        self._first_token.observe((seconds,))
        self._models.first_token(seconds, origin)

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        self._models.between_tokens(gaps, origin)

    def tokens(self, count: int, origin: Origin) -> None:
        self._completion_tokens.inc(count)
        self._models.tokens(count, origin)

    def moved(self, reason: MoveReason, origin: Origin) -> None:
        self._moves.labels(reason).inc()

    def ended(self, ending: Ending) -> None:
        self._models.ended(ending)
        self._callers.ended(ending)
        self._requests.labels(ending.code).inc()
        if ending.kind != "generate":
            self._query_inputs.labels(ending.kind).observe(ending.num_inputs)
        self._prompt_tokens.inc(ending.usage.prompt_tokens)
        self._cached_tokens.inc(ending.usage.cached_tokens)
        if ending.agent is not None:
            waited = ending.timings.queue_ms / 1000
            self._queue_wait.observe((waited,))
            if ending.kind == "generate":
                self._class_wait[ending.priority_class].observe(waited)
            self._duration.observe((ending.timings.total_ms / 1000,))

    # ---- what the routes of the inference port report

    def field_ignored(self, route: str, field: str) -> None:
        self._ignored_fields.labels(route, field).inc()

    def refused(self, route: str, code: str) -> None:
        self._requests.labels(code).inc()
        self._refusals.labels(route, code).inc()

    # ---- what is refused at the doors

    def turned_away(self, door: str, kind: str) -> None:
        self._turned_away.labels(door, kind).inc()

    # ---- inside

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"arriero_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str) -> GapHistogram:
        histogram = GapHistogram(f"arriero_{name}_seconds", help_text, SECONDS)
        self.registry.register(histogram)
        return histogram

    def _start_at_zero(self) -> None:
        """Create series with the value 0.

        A series that appears with its first event has no rate for this event.
        """
        for code in _CODES:
            self._requests.labels(code)
        for reason in get_args(MoveReason):
            self._moves.labels(reason)
        for kind in _KINDS:
            self._tokens.labels(kind)
        for kind in _QUERIES:
            self._query_inputs.labels(kind)
