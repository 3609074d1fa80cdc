"""Parses an answer as it streams into reasoning, tool calls and content.

May import: `families` and `calls`. Comes in: `generation`.
"""
