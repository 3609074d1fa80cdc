"""Requests and tokens by caller: the name of an access key, or `anonymous`.

Prometheus keeps a series for each name for ever, and keys come and go. So only the first
`MAX_CALLERS` names since the start are told apart.
"""

from prometheus_client import CollectorRegistry, Counter

from ...fleet.recorder import Ending

MAX_CALLERS = 256
OTHER = "other"
"""All further callers together; no key may be called so."""


class CallerMetrics:
    """Counters with the label `caller`."""

    def __init__(self, registry: CollectorRegistry, *, max_callers: int = MAX_CALLERS) -> None:
        self._max_callers = max_callers
        self._names: set[str] = set()
        self._requests = Counter(
            "arriero_caller_requests",
            "Requests that ended or were refused by the fleet, by caller.",
            ["caller"],
            registry=registry,
        )
        self._tokens = Counter(
            "arriero_caller_tokens",
            "Tokens of requests that ended, by caller.",
            ["caller", "kind"],
            registry=registry,
        )

    def ended(self, ending: Ending) -> None:
        """A request has ended."""
        name = self._label(ending.caller.name)
        self._requests.labels(name).inc()
        self._tokens.labels(name, "prompt").inc(ending.usage.prompt_tokens)
        self._tokens.labels(name, "completion").inc(ending.usage.completion_tokens)

    def _label(self, name: str) -> str:
        if name not in self._names:
            if len(self._names) >= self._max_callers:
                return OTHER
            self._names.add(name)
        return name
