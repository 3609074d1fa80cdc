"""Parses an answer as it streams into reasoning, tool calls and content.

The segmenter is the door. There is a parser for each notation of calls; `tools` and `schema_check`
validate the arguments of a call against its function's schema.
"""
