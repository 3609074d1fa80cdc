"""Connects the metrics with the parts of the balancer that supply their values."""

from contextlib import AsyncExitStack
from functools import partial

from ..shared import log
from .jobs.jobs import JobNumbers
from .management.metrics.fleet_collector import FleetCollector
from .management.metrics.loop_delay import LoopDelay
from .management.metrics.metrics import Metrics
from .parts import Parts
from .store.health import combined
from .store.records import StoreStatus


def collect_numbers(parts: Parts) -> None:
    """Register all values of the parts. Each scrape reads the values anew."""
    _of_the_fleet(parts)
    _of_what_is_kept(parts)
    _of_the_store(parts)
    _of_callers(parts)
    metrics = parts.metrics
    metrics.gauge(
        "log_lines_dropped",
        "Log lines dropped because nobody read standard error, since the start.",
        log.num_dropped,
    )
    if (peers := parts.peers) is not None:
        metrics.gauge(
            "balancers",
            "Balancers that share the store, this one among them.",
            lambda: peers.num_live,
        )
        metrics.gauge(
            "balancer_leads",
            "1 while this balancer gives agents orders.",
            lambda: peers.status().epoch is not None,
        )
        metrics.gauge(
            "balancer_unread_changes",
            "Changes of others to be read.",
            lambda: peers.status().num_unread,
        )
        metrics.gauge(
            "balancer_questions",
            "Questions to other balancers without all answers, and answers on their way.",
            lambda: peers.inquiries.num_open,
        )
    if (jobs := parts.jobs) is not None:
        metrics.figures(JobNumbers, lambda: {(): [jobs.numbers()]})
        for name, shares in jobs.pools().items():
            metrics.pool(name, shares)
    if parts.certificates is not None:
        metrics.gauge(
            "certificate_expires_in_seconds",
            "Time until the TLS certificate expires.",
            parts.certificates.seconds_left,
        )


def _of_the_fleet(parts: Parts) -> None:
    metrics, runtime = parts.metrics, parts.runtime
    metrics.registry.register(
        FleetCollector(
            partial(runtime.views.view, max_requests=0),
            backlog=runtime.backlog,
            events=parts.hub.numbers,
            hosts=lambda: parts.diary.num_hosts,
            desired=lambda: [each.status for each in runtime.views.statuses().values()],
        )
    )
    metrics.pool("event_readers", parts.hub.shares)
    parts.diary.issues = parts.issues
    parts.hub.find_troubles = parts.troubles
    metrics.gauge(
        "log_reads",
        "Readers who wait for the lines of an agent's log.",
        lambda: runtime.num_log_reads,
    )


def _of_what_is_kept(parts: Parts) -> None:
    """Register the numbers of stored conversations and retained requests."""
    metrics, memory = parts.metrics, parts.conversations.memory
    service, requests = parts.conversation_service, parts.request_service
    metrics.gauge(
        "stored_responses",
        "Answers of /v1/responses and threads of /v1/messages that are stored.",
        lambda: len(memory),
    )
    metrics.gauge(
        "stored_response_bytes",
        "Bytes of the stored answers and threads; a part that several share counts for each.",
        lambda: memory.num_bytes,
    )
    metrics.gauge(
        "stored_responses_unwritten",
        "Stored answers and threads that are to be in the shared store and are not yet.",
        lambda: 0 if service is None else service.num_waiting,
    )
    metrics.gauge(
        "kept_requests",
        "Requests with an idempotency key or in the background whose events are retained.",
        lambda: len(parts.retained),
    )
    metrics.gauge(
        "kept_request_bytes",
        "About how many bytes those events take.",
        lambda: parts.retained.num_bytes,
    )
    metrics.gauge(
        "kept_requests_unwritten",
        "Kept requests of which something is not in the store yet.",
        lambda: 0 if requests is None else len(requests.journal),
    )
    if service is not None:
        metrics.pool("conversations_unwritten", service.backlog.pool.counts)
        metrics.pool("conversations_unwritten_bytes", service.backlog.pool.sizes)
    if requests is not None:
        metrics.pool("kept_requests_unwritten", requests.journal.begun_counts)
        metrics.pool("kept_requests_unwritten_bytes", requests.journal.begun_bytes)
    metrics.pool("conversation_bytes", memory.pool.sizes)
    metrics.pool("conversations", memory.pool.counts)
    metrics.pool("kept_requests_running_bytes", parts.retained.running.sizes)
    metrics.pool("kept_requests_running", parts.retained.running.counts)
    metrics.pool("kept_requests_ended_bytes", parts.retained.idle.sizes)
    metrics.pool("kept_requests_ended", parts.retained.idle.counts)


def _of_the_store(parts: Parts) -> None:
    metrics, statuses = parts.metrics, parts.store_statuses
    metrics.gauge(
        "store_away",
        "1 while the store cannot be reached; the fleet goes on serving.",
        lambda: combined(statuses().values()).is_away,
    )
    metrics.gauge(
        "store_failing",
        "1 while the store is reached, and does not take all that is written to it.",
        lambda: combined(statuses().values()).fault is not None,
    )
    metrics.gauge(
        "store_pending",
        "Saves and records of the history that wait to be written.",
        lambda: statuses()["history"].num_pending,
    )
    metrics.gauge(
        "store_records_dropped",
        "Records of the history that were never written, since the start.",
        lambda: statuses()["history"].num_dropped,
    )
    metrics.figures(
        StoreStatus,
        lambda: {(kind,): [status] for kind, status in statuses().items()},
        labels=("kind",),
    )


def _of_callers(parts: Parts) -> None:
    metrics, access = parts.metrics, parts.access
    metrics.gauge("access_keys", "Access keys that open something.", lambda: access.ring.num_valid)
    metrics.gauge(
        "access_leases",
        "Sockets and streams of events that end with a key.",
        lambda: access.num_leases,
    )
    metrics.gauge(
        "sessions",
        "Sessions of people who logged in to the dashboard.",
        lambda: len(parts.sessions),
    )
    metrics.gauge(
        "limited_callers",
        "Callers whose requests and tokens are counted against limits.",
        lambda: parts.runtime.views.num_limited_callers,
    )
    metrics.gauge(
        "usage_rows",
        "Days, callers and models whose usage is told apart in memory.",
        lambda: len(parts.persistence.history.usage),
    )
    metrics.gauge(
        "client_notices",
        "Notices about clients' fields, logged in the last minute and not repeated.",
        lambda: parts.reports.num_clients,
    )
    metrics.gauge(
        "request_body_bytes",
        "Bytes of bodies that are being read or parsed.",
        lambda: parts.bodies.num_bytes,
    )


def measure_loop_delay(metrics: Metrics, until_the_end: AsyncExitStack) -> None:
    """Measure the delay of the event loop until `until_the_end` closes."""
    delay = LoopDelay()
    metrics.registry.register(delay.histogram)
    delay.start()
    until_the_end.callback(delay.stop)
