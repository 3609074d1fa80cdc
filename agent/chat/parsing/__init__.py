"""Parses an answer as it streams into reasoning, tool calls and content.

`segmenter` is the entry point. Each notation of calls has its own parser. `tools` and
`schema_check` validate the arguments of a call against its function's schema.
"""
