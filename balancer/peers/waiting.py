"""What requests wait for, as balancers tell it to whoever leads: models by name, as JSON."""

import json
from collections.abc import Iterable, Mapping

MOST_MODELS = 64
"""Models that one balancer tells of: those whose requests have waited longest."""

Waiting = Mapping[str, tuple[int, float]]
"""By model: how many requests wait, and for how many seconds the oldest has."""


def encoded(waiting: Waiting) -> str:
    """As `decoded` reads it."""
    longest = sorted(waiting.items(), key=lambda each: -each[1][1])[:MOST_MODELS]
    return json.dumps({name: [num, round(age, 3)] for name, (num, age) in longest})


def decoded(text: str) -> Waiting:
    """What a balancer told; nothing where another version wrote something else."""
    try:
        told = json.loads(text)
        return {str(name): (int(num), float(age)) for name, (num, age) in told.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def added_up(told: Iterable[tuple[Waiting, float]]) -> Waiting:
    """Of several balancers, each of which told it so many seconds ago."""
    total: dict[str, tuple[int, float]] = {}
    for waiting, ago in told:
        for name, (num, age) in waiting.items():
            known_num, known_age = total.get(name, (0, 0.0))
            total[name] = (known_num + num, max(known_age, age + ago))
    return total
