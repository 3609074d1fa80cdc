"""Parses an answer as it streams into reasoning, tool calls and content."""
