"""What a process holds when it rests, and what of it was not there before."""

from collections import Counter
from dataclasses import dataclass, field

MB = 1_000_000

MORE_FILES = 2
"""Files that come and go by themselves, such as a connection that is dialled anew."""

MORE_WORKERS = 3
"""Workers of grammars that an engine caches: two of those that rogues send, and one in advance."""

MORE_THREADS = 8
"""Threads that pools start when there is work for them; pools are bounded."""

MORE_BYTES = 64 * MB
"""What caches and the allocator may take beyond what they took at first."""

MUST_BE_ZERO = (
    "arriero_queue_depth",
    "arriero_query_parts_waiting",
    "arriero_query_parts_asked",
    "arriero_agent_messages_waiting",
    "arriero_agent_transfer_bytes",
    "arriero_request_body_bytes",
    "arriero_inference_connections",
    'arriero_slots{state="busy"}',
    'arriero_agent_sequences{state="running"}',
    'arriero_agent_sequences{state="waiting"}',
)
"""Gauges of a balancer that has nothing to do; those of agents are summed."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one process has: open files by what they are, threads, and its own memory in bytes.

    The sockets of an engine's grammar workers are counted as workers, not as files.
    """

    files: Counter[str] = field(default_factory=Counter)
    num_threads: int = 0
    num_bytes: int = 0
    num_workers: int = 0


def left_over(before: Footprint, after: Footprint) -> list[str]:
    """What `after` holds that `before` does not explain; empty if nothing."""
    found = []
    if after.files.total() > before.files.total() + MORE_FILES:
        more = ", ".join(f"{num} {name}" for name, num in (after.files - before.files).items())
        found.append(f"files left open: {more}")
    if after.num_workers > before.num_workers + MORE_WORKERS:
        found.append(f"workers left: {after.num_workers}, before {before.num_workers}")
    if after.num_threads > before.num_threads + MORE_THREADS:
        found.append(f"threads left: {after.num_threads}, before {before.num_threads}")
    if after.num_bytes > before.num_bytes + MORE_BYTES:
        found.append(f"memory: {after.num_bytes / MB:.0f} MB, before {before.num_bytes / MB:.0f}")
    return found


def gauges(metrics: str) -> dict[str, float]:
    """The metrics of a page that must be zero at rest, summed over agents."""
    sums: dict[str, float] = dict.fromkeys(MUST_BE_ZERO, 0.0)
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if (known := _without_agent(name)) in sums:
            sums[known] += float(value)
    return sums


def _without_agent(name: str) -> str:
    base, brace, labels = name.partition("{")
    others = [each for each in labels.rstrip("}").split(",") if not each.startswith("agent=")]
    return f"{base}{{{','.join(others)}}}" if brace else base


def unrest(metrics: str) -> list[str]:
    """Which gauges are not zero, with their values."""
    return [f"{name} is {value:g}" for name, value in gauges(metrics).items() if value]
