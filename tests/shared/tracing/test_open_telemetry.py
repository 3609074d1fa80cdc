"""Spans as OpenTelemetry's own, and when there is a tracer at all."""

import pytest

from arriero.shared.tracing.open_telemetry import Exporter, open_tracer, sdk_sampler
from arriero.shared.tracing.span import Span
from arriero.shared.tracing.trace_context import TraceContext
from arriero.shared.tracing.tracer import NO_TRACER, QueueTracer

PARENT = TraceContext(7, 8, is_sampled=True)
SPAN = Span(
    name="generate m",
    context=TraceContext(7, 9, is_sampled=True),
    parent=PARENT,
    start=10,
    end=20,
    kind="server",
    attributes={"arriero.agent": "box", "gen_ai.response.finish_reasons": ("stop",)},
    error="agent_lost",
)
SOMEWHERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


def test_a_span_survives_its_way() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import SpanKind, StatusCode

    memory = InMemorySpanExporter()
    assert Exporter(memory, Resource.create({"service.name": "s"}))([SPAN])
    [found] = memory.get_finished_spans()
    assert found.name == "generate m"
    assert found.context is not None and found.parent is not None
    assert (found.context.trace_id, found.context.span_id) == (7, 9)
    assert (found.parent.trace_id, found.parent.span_id) == (7, 8)
    assert (found.start_time, found.end_time) == (10, 20)
    assert found.kind is SpanKind.SERVER
    assert (found.status.status_code, found.status.description) == (StatusCode.ERROR, "agent_lost")
    assert found.attributes == SPAN.attributes
    assert found.resource.attributes["service.name"] == "s"


def test_an_exporter_that_raises_loses_its_spans_alone() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.resources import Resource

    class Broken:
        def export(self, spans: object) -> None:
            raise OSError("no route")

    assert not Exporter(Broken(), Resource.create())([SPAN])


def test_without_an_endpoint_nothing_is_traced() -> None:
    assert open_tracer("s", "1", {}) is NO_TRACER
    assert open_tracer("s", "1", {**SOMEWHERE, "OTEL_SDK_DISABLED": "true"}) is NO_TRACER


def test_with_one_there_is_a_tracer() -> None:
    pytest.importorskip("opentelemetry.sdk")
    tracer = open_tracer("s", "1", SOMEWHERE)
    assert isinstance(tracer, QueueTracer)
    tracer.close()


def test_by_default_clients_decide_about_their_traces() -> None:
    pytest.importorskip("opentelemetry.sdk")
    is_sampled = sdk_sampler()
    assert is_sampled(None, 1)
    assert is_sampled(PARENT, 7)
    assert not is_sampled(TraceContext(7, 8, is_sampled=False), 7)


def test_the_standard_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert not sdk_sampler()(None, 1)
