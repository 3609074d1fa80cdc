"""A collector of traces on loopback: takes OTLP over HTTP, and keeps the spans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

WAIT = 20.0
"""Seconds: spans are exported within two, on a machine with time."""


@dataclass(frozen=True)
class Collected:
    """One span. Ids in hex; `parent` is empty for the first one of a trace."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]


class Collector:
    """`spans` are those that came so far; `raw` is all that was received."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        self.raw = b""
        self.url = ""
        self._news = asyncio.Condition()

    def environment(self) -> dict[str, str]:
        """What makes a daemon export to here."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url}

    async def until(self, num_spans: int) -> list[Collected]:
        """Waits until so many have come."""

        async def come() -> None:
            async with self._news:
                await self._news.wait_for(lambda: len(self.spans) >= num_spans)

        try:
            await asyncio.wait_for(come(), WAIT)
        except TimeoutError:
            raise AssertionError(f"only {[each.name for each in self.spans]} came") from None
        return self.spans

    async def _take(self, request: web.Request) -> web.Response:
        self.raw += (body := await request.read())
        async with self._news:
            self.spans += spans_in(body)
            self._news.notify_all()
        return web.Response(content_type="application/x-protobuf")

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncIterator[Collector]":
        collector = cls()
        app = web.Application()
        app.router.add_post("/v1/traces", collector._take)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield collector
        finally:
            await runner.cleanup()


def spans_in(body: bytes) -> list[Collected]:
    """What an exporter sent."""
    message = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = message.ExportTraceServiceRequest.FromString(body)
    return [
        Collected(
            service=_values(resource.resource.attributes)["service.name"],
            name=span.name,
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            start=span.start_time_unix_nano,
            end=span.end_time_unix_nano,
            attributes=_values(span.attributes),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    kinds = ("string_value", "int_value", "double_value", "bool_value")
    return {
        each.key: next(
            (getattr(each.value, kind) for kind in kinds if each.value.HasField(kind)),
            [value.string_value for value in each.value.array_value.values],
        )
        for each in attributes
    }
