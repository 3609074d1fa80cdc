"""Traces of requests across both daemons, for OpenTelemetry: contexts, spans, their export.

The package has the header `traceparent`, spans as plain values, the queue and thread that export
them, and the only file that imports OpenTelemetry. Spans contain durations and counts, never any
text of a request.
"""
