"""Traces of requests across both daemons, for OpenTelemetry: W3C contexts, spans, their export.

Lives here: the header `traceparent`, spans as plain values, the queue and thread that export them,
and the only file that imports OpenTelemetry. Spans say how long and how much, never any text.
"""
