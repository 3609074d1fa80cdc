"""Metrics of requests by model.

Agents choose names, so the number is bounded: models beyond `MAX_MODELS` share the name `other`. A
model that left keeps its series, as counters must.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ...fleet.recorder import Ending, Origin
from .gap_histogram import Durations

MAX_MODELS = 64
OTHER = "other"

_GOOD = ("stop", "length", "tool_calls", "answered")
_LEFT = ("cancelled", "client_gone")


@dataclass(slots=True)
class _Model:
    first_token: Durations
    between_tokens: Durations
    tokens: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=lambda: Counter(ok=0, cancelled=0, failed=0))


class ModelMetrics(Collector):
    """Records the work of each model. Only requests that reached an agent count."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Make an empty recorder. `bounds` are in seconds, in ascending order."""
        self._bounds = bounds
        self._models: dict[str, _Model] = {}

    def __len__(self) -> int:
        """Return the number of models with series of their own, including `other`."""
        return len(self._models)

    def first_token(self, seconds: float, origin: Origin) -> None:
        """Record the time to a request's first token."""
        self._of(origin.model).first_token.observe((seconds,))

    def between_tokens(self, gaps: Sequence[float], origin: Origin) -> None:
        """Record the times between pieces. Called once for each step."""
        self._of(origin.model).between_tokens.observe(gaps)

    def tokens(self, count: int, origin: Origin) -> None:
        """Count delivered tokens. Called once for each step."""
        self._of(origin.model).tokens["completion"] += count

    def ended(self, ending: Ending) -> None:
        """Record the end of a request.

        The requested name counts only if the request reached an agent, because users choose the
        name.
        """
        if ending.agent is None:
            return
        model = self._of(ending.model or OTHER)
        model.requests[_outcome(ending.code)] += 1
        model.tokens["prompt"] += ending.usage.prompt_tokens
        model.tokens["cached"] += ending.usage.cached_tokens

    def total_between(self) -> Durations:
        """Return the times between tokens of all models."""
        return Durations.sum((each.between_tokens for each in self._models.values()), self._bounds)

    def collect(self) -> Iterator[Metric]:
        """Return the series of each model."""
        requests = CounterMetricFamily(
            "arriero_model_requests",
            "Requests that an agent had, by model and whether they ended well.",
            labels=["model", "outcome"],
        )
        tokens = CounterMetricFamily(
            "arriero_model_tokens",
            "Tokens by model: completion, prompt, and the prompt's cached ones.",
            labels=["model", "kind"],
        )
        first = HistogramMetricFamily(
            "arriero_model_first_token_seconds",
            "Time from a request's acceptance to its first token.",
            labels=["model"],
        )
        between = HistogramMetricFamily(
            "arriero_model_between_tokens_seconds",
            "Time between two tokens of one answer; those of one piece share it.",
            labels=["model"],
        )
        for name, model in self._models.items():
            for outcome, count in model.requests.items():
                requests.add_metric([name, outcome], count)
            for kind, count in model.tokens.items():
                tokens.add_metric([name, kind], count)
            model.first_token.add_to(first, [name])
            model.between_tokens.add_to(between, [name])
        yield from (requests, tokens, first, between)

    def _of(self, name: str) -> _Model:
        name = name or OTHER
        model = self._models.get(name)
        if model is None:
            if len(self._models) >= MAX_MODELS:
                name = OTHER
            fresh = _Model(Durations(self._bounds), Durations(self._bounds))
            model = self._models.setdefault(name, fresh)
        return model


def _outcome(code: str) -> str:
    if code in _GOOD:
        return "ok"
    return "cancelled" if code in _LEFT else "failed"
