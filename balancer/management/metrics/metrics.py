"""Prometheus counters and histograms of requests.

Invariant: no label takes its values from users' text, so the number of series is bounded. Series
of connected agents are in `fleet_collector`, and go when the agents go.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ....shared.tracing.span_queue import QueueNumbers
from ...control.model_status import Status
from ...fleet.recorder import Ending, MoveReason, Origin
from ...fleet.runtime.outbox import AgentBacklog
from ...fleet.shares import Shares
from ...fleet.view import FleetView
from ...jobs.jobs import JobNumbers
from ...store.health import combined
from ...store.records import StoreStatus
from .fleet_collector import EventNumbers, FleetCollector
from .gap_histogram import GapHistogram
from .loop_delay import LoopDelay
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
    """The times between tokens of all models, added up when somebody asks."""

    def __init__(self, models: ModelMetrics) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "arriero_between_tokens_seconds",
            "Time between two tokens of one answer; those of one piece share it.",
        )
        self._models.total_between().add_to(family, [])
        yield family


class _StoreLosses(Collector):
    """Records that the store never got, by kind."""

    def __init__(self, statuses: Callable[[], Mapping[str, StoreStatus]]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "arriero_store_lost",
            "Records of the history, retained requests and conversations that were never written "
            "to the store: they cannot be, or too many waited while it was away.",
            labels=["kind"],
        )
        for kind, status in self._statuses().items():
            family.add_metric([kind], status.num_dropped)
        yield family


class SpanCounts(Collector):
    """Counts of spans of traces by outcome; `numbers` is asked when the metrics are read."""

    def __init__(self, numbers: Callable[[], QueueNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """Return the number of waiting spans, and a counter by outcome."""
        now = self._numbers()
        yield GaugeMetricFamily(
            "arriero_spans_waiting", "Spans of traces that wait to be exported.", now.num_waiting
        )
        outcomes = CounterMetricFamily(
            "arriero_spans", "Spans of traces, by what became of them.", labels=["outcome"]
        )
        outcomes.add_metric(["exported"], now.num_exported)
        outcomes.add_metric(["dropped"], now.num_dropped)
        yield outcomes


class JobCollector(Collector):
    """Files and batches; `numbers` costs the same however much there is."""

    def __init__(self, numbers: Callable[[], JobNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        numbers = self._numbers()
        yield _gauge("files", "Files that are kept.", numbers.num_files)
        yield _gauge("files_bytes", "Bytes of the files that are kept.", numbers.num_bytes)
        yield _gauge("uploads", "Files that are being uploaded.", numbers.num_uploads)
        yield _gauge("batches", "Batches that this balancer runs.", numbers.num_batches)
        yield _gauge(
            "batch_lines_loaded", "Lines of batches in memory, running or not.", numbers.num_loaded
        )
        yield _gauge("batch_lines_running", "Lines of batches that run.", numbers.num_running)
        lines = CounterMetricFamily(
            "arriero_batch_lines", "Lines of batches that got a result.", labels=["result"]
        )
        lines.add_metric(["output"], numbers.num_completed)
        lines.add_metric(["error"], numbers.num_failed)
        yield lines


class PoolCollector(Collector):
    """Bounded pools that are shared fairly (`balancer/fleet/shares.py`), each by its name."""

    def __init__(self, pools: Mapping[str, Shares[Any]]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        """Use, bound, holders and refusals of each."""
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


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"arriero_{name}", words, value=value)


MAX_CALLERS = 256
"""Prometheus keeps a series for each name for ever, and keys come and go: only the first names
since the start have series of their own."""

OTHER = "other"
"""All further callers together; no key may be called so."""


class CallerMetrics:
    """Requests and tokens by caller: the name of an access key, or `anonymous`."""

    def __init__(self, registry: CollectorRegistry, *, max_callers: int = MAX_CALLERS) -> None:
        self._max_callers = max_callers
        self._series: dict[str, tuple[Counter, Counter, Counter]] = {}
        """Of each name its requests, prompt tokens and completion tokens."""
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
        """A request has ended."""
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

    def collect_fleet(
        self,
        view: Callable[[], FleetView],
        *,
        backlog: Callable[[], AgentBacklog],
        events: Callable[[], EventNumbers],
        hosts: Callable[[], Mapping[str, int]] = dict,
        desired: Callable[[], Iterable[Status]] = tuple,
    ) -> None:
        """Also export the fleet's state; the arguments are those of `FleetCollector`."""
        collector = FleetCollector(
            view, backlog=backlog, events=events, hosts=hosts, desired=desired
        )
        self.registry.register(collector)

    def collect_responses(
        self,
        num_kept: Callable[[], int],
        num_bytes: Callable[[], int],
        num_unwritten: Callable[[], int],
    ) -> None:
        """Also export how many results and threads are stored, and their size."""
        self._gauge(
            "stored_responses",
            "Answers of /v1/responses and threads of /v1/messages that are stored.",
            num_kept,
        )
        self._gauge(
            "stored_response_bytes",
            "Bytes of the stored answers and threads; a part that several share counts for each.",
            num_bytes,
        )
        self._gauge(
            "stored_responses_unwritten",
            "Stored answers and threads that are to be in the shared store and are not yet.",
            num_unwritten,
        )

    def collect_peers(
        self,
        num_live: Callable[[], int],
        is_leading: Callable[[], int],
        num_unread: Callable[[], int],
        num_questions: Callable[[], int],
    ) -> None:
        """Also export what balancers over the same store there are, and which one leads."""
        self._gauge("balancers", "Balancers that share the store, this one among them.", num_live)
        self._gauge("balancer_leads", "1 while this balancer gives agents orders.", is_leading)
        self._gauge("balancer_unread_changes", "Changes of others to be read.", num_unread)
        help = "Questions to other balancers without all answers, and answers on their way."
        self._gauge("balancer_questions", help, num_questions)

    def collect_jobs(self, numbers: Callable[[], JobNumbers]) -> None:
        """Also export files and batches."""
        self.registry.register(JobCollector(numbers))

    def collect_retained(
        self,
        num_kept: Callable[[], int],
        num_bytes: Callable[[], int],
        num_unwritten: Callable[[], int],
    ) -> None:
        """Also export how many requests are retained beyond their connection, and their size."""
        self._gauge(
            "kept_requests",
            "Requests with an idempotency key or in the background whose events are retained.",
            num_kept,
        )
        self._gauge("kept_request_bytes", "About how many bytes those events take.", num_bytes)
        self._gauge(
            "kept_requests_unwritten",
            "Kept requests of which something is not in the store yet.",
            num_unwritten,
        )

    def collect_connections(self, port: str, num_open: Callable[[], int]) -> None:
        """Also export the number of connections to a port."""
        self._gauge(f"{port}_connections", f"Open connections to the {port} port.", num_open)

    def collect_floods(self, port: str, num_flooded: Callable[[], int]) -> None:
        """Also export how many WebSockets of a port were closed for their floods of frames."""
        self._gauge(
            f"{port}_flooded_sockets",
            f"WebSockets of the {port} port that were closed: too many pings or tiny frames.",
            num_flooded,
        )

    def collect_log_reads(self, num_reads: Callable[[], int]) -> None:
        """Also export how many readers wait for agents' logs."""
        self._gauge("log_reads", "Readers who wait for the lines of an agent's log.", num_reads)

    def collect_bodies(self, num_bytes: Callable[[], int]) -> None:
        """Also export the bytes of request bodies that are being read or parsed."""
        self._gauge(
            "request_body_bytes", "Bytes of bodies that are being read or parsed.", num_bytes
        )

    def collect_pool(self, name: str, shares: Shares[Any]) -> None:
        """Also export use, bound and refusals of a pool."""
        self._pools[name] = shares

    def collect_links(self, num_open: Callable[[], int]) -> None:
        """Also export how many links to pictures are followed."""
        self._gauge(
            "media_links", "Links to pictures that are fetched, or wait for that.", num_open
        )

    def collect_spans(self, numbers: Callable[[], QueueNumbers]) -> None:
        """Also export what becomes of the spans of traces."""
        self.registry.register(SpanCounts(numbers))

    def collect_store(self, statuses: Callable[[], Mapping[str, StoreStatus]]) -> None:
        """Also export how the store is for each that writes to it, `history` among them."""

        def status() -> StoreStatus:
            return statuses()["history"]

        self._gauge(
            "store_away",
            "1 while the store cannot be reached; the fleet goes on serving.",
            lambda: int(combined(statuses().values()).is_away),
        )
        self._gauge(
            "store_failing",
            "1 while the store is reached, and does not take all that is written to it.",
            lambda: int(combined(statuses().values()).fault is not None),
        )
        self.registry.register(_StoreLosses(statuses))
        self._gauge(
            "store_pending",
            "Saves and records of the history that wait to be written.",
            lambda: status().num_pending,
        )
        self._gauge(
            "store_records_dropped",
            "Records of the history that were never written, since the start.",
            lambda: status().num_dropped,
        )

    def collect_log(self, num_dropped: Callable[[], int]) -> None:
        """Also export how many lines of the log were dropped because nobody read them."""
        gauge = Gauge(
            "arriero_log_lines_dropped",
            "Log lines dropped because nobody read standard error, since the start.",
            registry=self.registry,
        )
        gauge.set_function(num_dropped)

    def collect_loop_delay(self, delay: LoopDelay) -> None:
        """Also export how late the event loop is."""
        self.registry.register(delay.histogram)

    def collect_keys(self, num_valid: Callable[[], int], num_leases: Callable[[], int]) -> None:
        """Also export how many access keys there are, and what they keep open."""
        self._gauge("access_keys", "Access keys that open something.", num_valid)
        self._gauge(
            "access_leases", "Sockets and streams of events that end with a key.", num_leases
        )

    def collect_sessions(self, num_open: Callable[[], int]) -> None:
        """Also export how many sessions of the dashboard there are."""
        self._gauge("sessions", "Sessions of people who logged in to the dashboard.", num_open)

    def collect_certificate(self, seconds_left: Callable[[], float]) -> None:
        """Also export how long the TLS certificate is valid."""
        gauge = Gauge(
            "arriero_certificate_expires_in_seconds",
            "Time until the TLS certificate expires.",
            registry=self.registry,
        )
        gauge.set_function(seconds_left)

    def collect_notices(self, num_held: Callable[[], int]) -> None:
        """From now on answer with how many notices about clients are held back for a while."""
        self._gauge(
            "client_notices",
            "Notices about clients' fields, logged in the last minute and not repeated.",
            num_held,
        )

    def collect_limits(self, num_callers: Callable[[], int]) -> None:
        """From now on answer with how many callers' limits are counted."""
        self._gauge(
            "limited_callers",
            "Callers whose requests and tokens are counted against limits.",
            num_callers,
        )

    def collect_usage(self, num_rows: Callable[[], int]) -> None:
        """From now on answer with how many rows of usage are in memory."""
        self._gauge(
            "usage_rows", "Days, callers and models whose usage is told apart in memory.", num_rows
        )

    def render(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, in the format that `accept` asks for."""
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

    def _gauge(self, name: str, help_text: str, value: Callable[[], int]) -> None:
        gauge = Gauge(f"arriero_{name}", help_text, registry=self.registry)
        gauge.set_function(value)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"arriero_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str) -> GapHistogram:
        histogram = GapHistogram(f"arriero_{name}_seconds", help_text, SECONDS)
        self.registry.register(histogram)
        return histogram

    def _start_at_zero(self) -> None:
        """A series that appears with its first event has no rate over that event."""
        for code in _CODES:
            self._requests.labels(code)
        for reason in get_args(MoveReason):
            self._moves.labels(reason)
        for kind in _KINDS:
            self._tokens.labels(kind)
        for kind in _QUERIES:
            self._query_inputs.labels(kind)
