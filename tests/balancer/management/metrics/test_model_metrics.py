from prometheus_client import CollectorRegistry

from arriero.balancer.fleet.recorder import Ending, Origin
from arriero.balancer.management.metrics.model_metrics import MAX_MODELS, OTHER, ModelMetrics
from arriero.shared.inference import RequestId, Timings, Usage


class Scraped:
    def __init__(self) -> None:
        self.metrics = ModelMetrics((0.1, 1.0))
        self.registry = CollectorRegistry()
        self.registry.register(self.metrics)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"arriero_model_{name}", labels)


def ending(code: str, model: str | None, *, agent: str | None = "a") -> Ending:
    return Ending(
        code=code,
        request_id=RequestId("r"),
        agent=agent,
        usage=Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=2),
        timings=Timings(queue_ms=1.0, first_token_ms=2.0, total_ms=5.0),
        model=model,
    )


def test_each_model_has_its_own_numbers() -> None:
    seen = Scraped()
    for model in ("m", "n"):
        seen.metrics.first_token(0.05, Origin("a", model))
        seen.metrics.between_tokens((0.5, 2.0), Origin("a", model))
        seen.metrics.tokens(3, Origin("a", model))
    for code in ("stop", "length", "client_gone", "agent_lost"):
        seen.metrics.ended(ending(code, "m"))
    assert seen.value("first_token_seconds_bucket", model="m", le="0.1") == 1
    assert seen.value("between_tokens_seconds_bucket", model="n", le="1.0") == 1
    assert seen.value("between_tokens_seconds_count", model="n") == 2
    assert seen.value("tokens_total", model="m", kind="completion") == 3
    assert seen.value("tokens_total", model="m", kind="cached") == 16
    outcomes = [
        seen.value("requests_total", model="m", outcome=each)
        for each in ("ok", "cancelled", "failed")
    ]
    assert outcomes == [2, 1, 1]
    total = seen.metrics.total_between()
    assert (total._counts, total._sum) == ([0, 2, 2], 5.0)


def test_what_users_write_is_no_label() -> None:
    seen = Scraped()
    seen.metrics.ended(ending("model_not_found", "anything", agent=None))
    assert len(seen.metrics) == 0


def test_the_number_of_models_is_bounded() -> None:
    seen = Scraped()
    for number in range(MAX_MODELS + 50):
        seen.metrics.tokens(1, Origin("a", f"m{number}"))
    seen.metrics.tokens(1, Origin("a", "m0"))
    assert len(seen.metrics) == MAX_MODELS + 1
    assert seen.value("tokens_total", model=OTHER, kind="completion") == 50
    assert seen.value("tokens_total", model="m0", kind="completion") == 2
