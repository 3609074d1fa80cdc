"""What a scrape shows after what happened."""

from dataclasses import replace

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.recorder import NOWHERE, Ending, Recorder
from arriero.balancer.fleet.shares import Shares
from arriero.balancer.jobs.jobs import JobNumbers
from arriero.balancer.management.metrics.metrics import (
    SECONDS,
    CallerMetrics,
    Metrics,
)
from arriero.balancer.store.records import StoreStatus
from arriero.shared.errors import BY_CODE
from arriero.shared.inference import PRIORITY_CLASSES, RequestId, Timings, Usage
from arriero.shared.tracing.span_queue import QueueNumbers
from tests.balancer.history import builders


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of the exposition, by name and labels, as a scraper reads it."""
    body, _ = metrics.render("text/plain")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def ending(code: str, *, agent: str | None) -> Ending:
    return Ending(
        code=code,
        request_id=RequestId("r1"),
        agent=agent,
        usage=Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=3),
        timings=Timings(queue_ms=250.0, first_token_ms=300.0, total_ms=2000.0),
    )


def test_what_the_store_lost() -> None:
    metrics = Metrics()
    lost = {"history": StoreStatus(num_dropped=2), "requests": StoreStatus(num_dropped=5)}
    reports = {(kind,): [status] for kind, status in lost.items()}
    metrics.figures(StoreStatus, lambda: reports, labels=("kind",))
    assert value(metrics, "arriero_store_lost_total", kind="history") == 2
    assert value(metrics, "arriero_store_lost_total", kind="requests") == 5


def test_it_is_a_recorder() -> None:
    recorder: Recorder = Metrics()
    recorder.first_token(0.1, NOWHERE)


def test_tokens_by_kind() -> None:
    metrics = Metrics()
    metrics.tokens(5, NOWHERE)
    metrics.tokens(2, NOWHERE)
    metrics.ended(ending("stop", agent="a"))
    assert value(metrics, "arriero_tokens_total", kind="completion") == 7
    assert value(metrics, "arriero_tokens_total", kind="prompt") == 10
    assert value(metrics, "arriero_tokens_total", kind="cached") == 4


def test_endings_by_code() -> None:
    metrics = Metrics()
    metrics.ended(ending("stop", agent="a"))
    metrics.ended(ending("agent_lost", agent="a"))
    metrics.ended(ending("agent_lost", agent="b"))
    assert value(metrics, "arriero_requests_total", code="stop") == 1
    assert value(metrics, "arriero_requests_total", code="agent_lost") == 2


def test_moves_by_reason() -> None:
    metrics = Metrics()
    assert value(metrics, "arriero_moves_total", reason="drained") == 0
    metrics.moved("lost", NOWHERE)
    assert value(metrics, "arriero_moves_total", reason="lost") == 1


def test_every_code_is_there_from_the_start() -> None:
    metrics = Metrics()
    for code in ("stop", "length", "cancelled", "client_gone", *BY_CODE):
        assert value(metrics, "arriero_requests_total", code=code) == 0


def test_times_have_the_buckets_that_are_promised() -> None:
    metrics = Metrics()
    metrics.first_token(0.004, NOWHERE)
    metrics.between_tokens([61], NOWHERE)
    assert SECONDS[0] == 0.001
    assert SECONDS[-1] == 60
    assert value(metrics, "arriero_first_token_seconds_bucket", le="0.0025") == 0
    assert value(metrics, "arriero_first_token_seconds_bucket", le="0.005") == 1
    assert value(metrics, "arriero_between_tokens_seconds_bucket", le="60.0") == 0
    assert value(metrics, "arriero_between_tokens_seconds_bucket", le="+Inf") == 1


def test_only_requests_that_got_a_slot_count_as_having_waited_for_one() -> None:
    metrics = Metrics()
    metrics.ended(ending("queue_full", agent=None))
    metrics.ended(ending("stop", agent="a"))
    assert value(metrics, "arriero_queue_wait_seconds_count") == 1
    assert value(metrics, "arriero_queue_wait_seconds_sum") == 0.25
    assert value(metrics, "arriero_request_seconds_sum") == 2.0


def test_classes_wait_apart() -> None:
    metrics = Metrics()
    name = "arriero_queue_class_wait_seconds_count"
    for kind in PRIORITY_CLASSES:
        assert value(metrics, name, priority_class=kind) == 0
    metrics.ended(replace(ending("stop", agent="a"), priority_class="batch"))
    metrics.ended(replace(ending("queue_full", agent=None), priority_class="interactive"))
    metrics.ended(replace(ending("answered", agent="a"), kind="embed"))
    assert [value(metrics, name, priority_class=kind) for kind in PRIORITY_CLASSES] == [1, 0, 0]


def test_registries_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first.tokens(1, NOWHERE)
    assert value(second, "arriero_tokens_total", kind="completion") == 0


def test_the_process_is_measured() -> None:
    assert value(Metrics(), "process_resident_memory_bytes") > 0


def test_openmetrics_on_demand() -> None:
    body, content_type = Metrics().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_pools_by_name() -> None:
    metrics, shares = Metrics(), Shares[str](100)
    metrics.pool("bodies", shares)
    assert shares.claim("a", 40)
    assert not shares.claim("a", 20)
    assert value(metrics, "arriero_pool_used", pool="bodies") == 40
    assert value(metrics, "arriero_pool_limit", pool="bodies") == 100
    assert value(metrics, "arriero_pool_holders", pool="bodies") == 1
    assert value(metrics, "arriero_pool_refusals_total", pool="bodies", why="share") == 1
    assert value(metrics, "arriero_pool_refusals_total", pool="bodies", why="evicted") == 0


def test_queries_by_kind_and_size() -> None:
    metrics = Metrics()
    metrics.ended(ending("stop", agent="a"))
    assert value(metrics, "arriero_query_inputs_count", kind="embed") == 0
    metrics.ended(replace(ending("answered", agent="a"), kind="embed", num_inputs=20))
    assert value(metrics, "arriero_query_inputs_count", kind="embed") == 1
    assert value(metrics, "arriero_query_inputs_sum", kind="embed") == 20
    assert value(metrics, "arriero_requests_total", code="answered") == 1


def test_ignored_fields_by_door() -> None:
    metrics = Metrics()
    metrics.field_ignored("/v1/messages", "speed")
    metrics.field_ignored("/v1/messages", "speed")
    labels = {"door": "/v1/messages", "field": "speed"}
    assert value(metrics, "arriero_ignored_fields_total", **labels) == 2


def test_refusals_by_door_and_code() -> None:
    metrics = Metrics()
    metrics.refused("/v1/messages", "invalid_request")
    labels = {"door": "/v1/messages", "code": "invalid_request"}
    assert value(metrics, "arriero_refusals_total", **labels) == 1
    assert value(metrics, "arriero_requests_total", code="invalid_request") == 1


def test_what_waits_was_exported_and_was_dropped() -> None:
    metrics = Metrics()
    metrics.figures(QueueNumbers, lambda: {(): [QueueNumbers(3, 5, 7)]})
    assert value(metrics, "arriero_spans_waiting") == 3
    assert value(metrics, "arriero_spans_total", outcome="exported") == 5
    assert value(metrics, "arriero_spans_total", outcome="dropped") == 7


NUMBERS = JobNumbers(
    num_files=1,
    num_bytes=2,
    num_uploads=3,
    num_batches=4,
    num_loaded=5,
    num_running=6,
    num_completed=7,
    num_failed=8,
)


def test_each_number_has_its_metric() -> None:
    metrics = Metrics()
    metrics.figures(JobNumbers, lambda: {(): [NUMBERS]})
    names = ("files", "files_bytes", "uploads", "batches", "batch_lines_loaded")
    for number, name in enumerate((*names, "batch_lines_running"), start=1):
        assert value(metrics, f"arriero_{name}") == number
    assert value(metrics, "arriero_batch_lines_total", result="output") == 7
    assert value(metrics, "arriero_batch_lines_total", result="error") == 8


def test_callers_are_told_apart_up_to_a_number() -> None:
    registry = CollectorRegistry()
    metrics = CallerMetrics(registry, max_callers=2)
    one = builders.ending("r")
    for name in ("ana", "ben", "ana", "cleo", "dora"):
        metrics.ended(replace(one, caller=Caller(name)))
    requests = {
        name: registry.get_sample_value("arriero_caller_requests_total", {"caller": name})
        for name in ("ana", "ben", "cleo", "other")
    }
    assert requests == {"ana": 2, "ben": 1, "cleo": None, "other": 2}
    labels = {"caller": "ana", "kind": "completion"}
    tokens = registry.get_sample_value("arriero_caller_tokens_total", labels)
    assert tokens == 2 * one.usage.completion_tokens
