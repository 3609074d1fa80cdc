"""Streams of any API as what they say: pieces joined, and without what differs from run to run."""

import json
from collections.abc import Iterable
from typing import Any

VARYING = frozenset(
    [
        "id",
        "item_id",
        "call_id",
        "response_id",
        "created",
        "created_at",
        "completed_at",
        "timings",
        "agent",
        "sequence_number",
        "obfuscation",
        "system_fingerprint",
        "tokens",
        "cached_tokens",
        "input_tokens",
        "cache_read_input_tokens",
        "total_tokens",
    ]
)
"""Ids, times, numbers of events and what was cached."""

ROUNDED = frozenset(["logprob"])
"""Their last bits depend on what is computed beside them, unless agents are deterministic."""

TEXTS = frozenset(
    [
        "text",
        "content",
        "reasoning_content",
        "reasoning",
        "arguments",
        "delta",
        "thinking",
        "partial_json",
    ]
)
LISTS = frozenset(("logprobs", "content"))


def events_of(lines: Iterable[str]) -> list[Any]:
    """The events of a stream, NDJSON or SSE; comments and names of events are left out."""
    events = []
    for line in lines:
        data = line.removeprefix("data:").strip()
        if data and data != "[DONE]" and not line.startswith((":", "event:")):
            events.append(json.loads(data))
    return events


def folded(events: Iterable[Any], *, is_exact: bool = False) -> list[Any]:
    """Neighbours of one form joined. If it `is_exact`, probabilities to their last bit."""
    left_out = VARYING if is_exact else VARYING | ROUNDED
    joined: list[Any] = []
    for event in (_steady(each, left_out) for each in events):
        both = _joined(joined[-1], event) if joined else None
        if both is None:
            joined.append(event)
        else:
            joined[-1] = both
    return joined


def _steady(value: Any, left_out: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _steady(each, left_out) for key, each in value.items() if key not in left_out}
    return [_steady(each, left_out) for each in value] if isinstance(value, list) else value


def _joined(first: Any, second: Any, key: str = "") -> Any:
    """Both as one, or `None` where they differ in more than their text."""
    if isinstance(first, str) and isinstance(second, str) and key in TEXTS:
        return first + second
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        both = {name: _joined(first[name], second[name], name) for name in first}
        fits = all(both[name] is not None or first[name] is None for name in first)
        return both if fits else None
    if isinstance(first, list) and isinstance(second, list):
        if key in LISTS:
            return first + second
        if len(first) == len(second):
            both_lists = [_joined(a, b) for a, b in zip(first, second, strict=True)]
            return both_lists if None not in both_lists else None
        return None
    return first if first == second else None
