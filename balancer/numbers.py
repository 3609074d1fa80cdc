"""The parts' numbers, as the metrics read them."""

from contextlib import AsyncExitStack
from functools import partial

from ..shared import log
from .management.metrics.loop_delay import LoopDelay
from .management.metrics.metrics import Metrics
from .parts import Parts


def collect_numbers(parts: Parts) -> None:
    """Let the metrics ask the parts when they are read."""
    metrics, runtime, conversations = parts.metrics, parts.runtime, parts.conversations
    metrics.collect_fleet(
        partial(runtime.views.view, max_requests=0),
        backlog=runtime.backlog,
        events=parts.hub.numbers,
    )
    conversation_keeper = parts.conversation_keeper
    metrics.collect_responses(
        lambda: len(conversations.memory),
        lambda: conversations.memory.num_bytes,
        lambda: 0 if conversation_keeper is None else conversation_keeper.num_waiting,
    )
    keeper = parts.kept_keeper
    metrics.collect_kept(
        lambda: len(parts.kept),
        lambda: parts.kept.num_bytes,
        lambda: 0 if keeper is None else len(keeper.journal),
    )
    metrics.collect_log(log.num_dropped)
    metrics.collect_store(parts.store_statuses)
    metrics.collect_log_reads(lambda: runtime.num_log_reads)
    metrics.collect_bodies(lambda: parts.bodies.num_bytes)
    metrics.collect_usage(lambda: len(parts.persistence.history.usage))
    metrics.collect_limits(lambda: runtime.views.num_limited_callers)
    metrics.collect_notices(lambda: parts.reports.num_clients)
    access = parts.access
    metrics.collect_keys(lambda: access.ring.num_valid, lambda: access.num_leases)
    if (peers := parts.peers) is not None:
        metrics.collect_peers(
            lambda: peers.num_live,
            lambda: int(peers.status().epoch is not None),
            lambda: peers.status().num_unread,
            lambda: peers.inquiries.num_open,
        )
    if parts.jobs is not None:
        metrics.collect_jobs(parts.jobs.numbers)
    metrics.collect_sessions(lambda: len(parts.sessions))
    if parts.certificates is not None:
        metrics.collect_certificate(parts.certificates.seconds_left)


def measure_loop_delay(metrics: Metrics, until_the_end: AsyncExitStack) -> None:
    """Until the end, count how late the event loop is."""
    delay = LoopDelay()
    metrics.collect_loop_delay(delay)
    delay.start()
    until_the_end.callback(delay.stop)
