"""The connection to OpenTelemetry's SDK; only this file imports it.

The package extra `opentelemetry` installs the SDK, and its standard variables configure it. Traces
are on if `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set, and
`OTEL_SDK_DISABLED` is not. The exporter speaks OTLP over HTTP with protobuf. `OTEL_TRACES_SAMPLER`
decides which traces are recorded. By default these are new traces and traces that a client
records.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .span import Span
from .span_queue import SpanQueue
from .trace_context import TraceContext
from .tracer import NO_TRACER, QueueTracer, Sampler, Tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def open_tracer(service: str, version: str, environment: Mapping[str, str] = os.environ) -> Tracer:
    """Return the tracer of the daemon `service`; `OTEL_SERVICE_NAME` can rename the service."""
    endpoint = next((name for name in ENDPOINTS if environment.get(name)), None)
    if endpoint is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NO_TRACER
    if not _is_installed():
        logger.warning(
            "%s is set, but nothing is traced: OpenTelemetry is not installed; install "
            "arriero[opentelemetry]",
            endpoint,
        )
        return NO_TRACER
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource

    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": service}
    resource = Resource.create({**named, "service.version": version})
    logger.info("traces are exported to %s", endpoint)
    return QueueTracer(SpanQueue(Exporter(OTLPSpanExporter(), resource)), sdk_sampler())


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _MODULES)
    except ModuleNotFoundError:
        return False


def sdk_sampler() -> Sampler:
    """Return the sampler that the standard variables select."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    sampler = TracerProvider(shutdown_on_exit=False).sampler

    def is_sampled(parent: TraceContext | None, trace_id: int) -> bool:
        span = None if parent is None else NonRecordingSpan(_context(parent, is_remote=True))
        around = None if span is None else set_span_in_context(span)
        return bool(sampler.should_sample(around, trace_id, "request").decision.is_sampled())

    return is_sampled


class Exporter:
    """Passes batches of spans to an exporter of the SDK."""

    def __init__(self, exporter: "SpanExporter", resource: "Resource") -> None:
        self._exporter = exporter
        self._resource = resource

    def __call__(self, spans: Sequence[Span]) -> bool:
        """Export the spans. Returns whether they arrived; see `span_queue.Export`."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            result = self._exporter.export([self._readable(span) for span in spans])
        except Exception:  # the boundary of an export: its spans are lost, and nobody else notices
            logger.exception("unexpected error while exporting spans; they are lost")
            return False
        return result is SpanExportResult.SUCCESS

    def _readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanKind, Status, StatusCode

        return ReadableSpan(
            name=span.name,
            context=_context(span.context, is_remote=False),
            parent=None if span.parent is None else _context(span.parent, is_remote=True),
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind.SERVER if span.kind == "server" else SpanKind.INTERNAL,
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=InstrumentationScope("arriero"),
        )


def _context(context: TraceContext, *, is_remote: bool) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(context.trace_id, context.span_id, is_remote=is_remote, trace_flags=flags)
