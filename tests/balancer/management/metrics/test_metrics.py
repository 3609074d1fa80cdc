"""What a scrape shows after what happened."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.recorder import NOWHERE, Ending, Recorder
from arriero.balancer.fleet.shares import Shares
from arriero.balancer.jobs.jobs import JobNumbers
from arriero.balancer.management.metrics.metrics import (
    SECONDS,
    CallerMetrics,
    JobCollector,
    Metrics,
    SpanCounts,
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


def test_the_store_is_exported() -> None:
    metrics = Metrics()
    of_history, of_requests = StoreStatus(), StoreStatus()
    metrics.collect_store(lambda: {"history": of_history, "requests": of_requests})
    lines = metrics.render("")[0].decode().splitlines()
    assert {"arriero_store_away 0.0", "arriero_store_failing 0.0"} <= set(lines)
    of_history = StoreStatus(away_since=3.0, problem="refused", num_pending=7, num_dropped=2)
    of_requests = StoreStatus(num_pending=1, num_dropped=5, fault="some were lost")
    lines = metrics.render("")[0].decode().splitlines()
    assert {
        *("arriero_store_away 1.0", "arriero_store_failing 1.0", "arriero_store_pending 7.0"),
        "arriero_store_records_dropped 2.0",
        'arriero_store_lost_total{kind="history"} 2.0',
        'arriero_store_lost_total{kind="requests"} 5.0',
    } <= set(lines)


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


def test_kept_answers() -> None:
    metrics = Metrics()
    metrics.collect_responses(lambda: 3, lambda: 1000, lambda: 2)
    assert value(metrics, "arriero_stored_responses") == 3
    assert value(metrics, "arriero_stored_response_bytes") == 1000
    assert value(metrics, "arriero_stored_responses_unwritten") == 2


def test_pools_by_name() -> None:
    metrics, shares = Metrics(), Shares[str](100)
    metrics.collect_pool("bodies", shares)
    assert shares.claim("a", 40)
    assert not shares.claim("a", 20)
    assert value(metrics, "arriero_pool_used", pool="bodies") == 40
    assert value(metrics, "arriero_pool_limit", pool="bodies") == 100
    assert value(metrics, "arriero_pool_holders", pool="bodies") == 1
    assert value(metrics, "arriero_pool_refusals_total", pool="bodies", why="share") == 1
    assert value(metrics, "arriero_pool_refusals_total", pool="bodies", why="evicted") == 0


def test_lines_of_the_log_that_nobody_read() -> None:
    metrics = Metrics()
    metrics.collect_log(lambda: 7)
    assert value(metrics, "arriero_log_lines_dropped") == 7


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
    metrics.collect_notices(lambda: 3)
    metrics.field_ignored("/v1/messages", "speed")
    metrics.field_ignored("/v1/messages", "speed")
    labels = {"door": "/v1/messages", "field": "speed"}
    assert value(metrics, "arriero_ignored_fields_total", **labels) == 2
    assert value(metrics, "arriero_client_notices") == 3


def test_how_long_the_certificate_lasts() -> None:
    metrics = Metrics()
    metrics.collect_certificate(lambda: 60.5)
    assert value(metrics, "arriero_certificate_expires_in_seconds") == 60.5


def test_callers_with_limits() -> None:
    metrics = Metrics()
    metrics.collect_limits(lambda: 4)
    assert value(metrics, "arriero_limited_callers") == 4


def test_rows_of_usage() -> None:
    metrics = Metrics()
    metrics.collect_usage(lambda: 5)
    assert value(metrics, "arriero_usage_rows") == 5


def test_refusals_by_door_and_code() -> None:
    metrics = Metrics()
    metrics.refused("/v1/messages", "invalid_request")
    labels = {"door": "/v1/messages", "code": "invalid_request"}
    assert value(metrics, "arriero_refusals_total", **labels) == 1
    assert value(metrics, "arriero_requests_total", code="invalid_request") == 1


def test_what_waits_was_exported_and_was_dropped() -> None:
    registry = CollectorRegistry()
    registry.register(SpanCounts(lambda: QueueNumbers(3, 5, 7)))
    text = generate_latest(registry).decode()
    assert "arriero_spans_waiting 3.0" in text
    assert 'arriero_spans_total{outcome="exported"} 5.0' in text
    assert 'arriero_spans_total{outcome="dropped"} 7.0' in text


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
    registry = CollectorRegistry()
    registry.register(JobCollector(lambda: NUMBERS))
    text = generate_latest(registry).decode()
    names = ("files", "files_bytes", "uploads", "batches", "batch_lines_loaded")
    for value, name in enumerate((*names, "batch_lines_running"), start=1):
        assert f"arriero_{name} {value}.0" in text
    assert 'arriero_batch_lines_total{result="output"} 7.0' in text
    assert 'arriero_batch_lines_total{result="error"} 8.0' in text


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
