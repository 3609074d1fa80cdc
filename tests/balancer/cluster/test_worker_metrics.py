"""One text of the metrics of several workers, as Prometheus' own parsers read it."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from arriero.balancer.cluster.cluster_view import labelled, merged


def registry(number: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("requests", "Of a kind.", ["kind"], registry=registry).labels('a"}b').inc(number)
    Gauge("depth", "Waiting.", registry=registry).set(number)
    Histogram("seconds", "Long.", buckets=(1.0,), registry=registry).observe(0.5)
    return registry


@pytest.mark.parametrize("is_open", [False, True])
def test_each_sample_says_whose_it_is(is_open: bool) -> None:
    write = generate_openmetrics if is_open else generate_latest
    read = read_openmetrics if is_open else read_text
    told = merged({n: write(registry(n)).decode() for n in (1, 2)} | {3: None})
    families = {family.name: family for family in read(told)}
    assert families["depth"].documentation == "Waiting."
    depths = {each.labels["worker"]: each.value for each in families["depth"].samples}
    assert depths == {"1": 1.0, "2": 2.0}
    (first, second) = [s for s in families["requests"].samples if s.name == "requests_total"]
    assert (first.labels, first.value) == ({"worker": "1", "kind": 'a"}b'}, 1.0)
    assert second.labels["worker"] == "2"
    up = {each.labels["worker"]: each.value for each in families["arriero_worker_up"].samples}
    assert up == {"1": 1.0, "2": 1.0, "3": 0.0}


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        ("a 1", 'a{worker="0"} 1'),
        ("a{} 1", 'a{worker="0"} 1'),
        ('a{b="c"} 1', 'a{worker="0",b="c"} 1'),
        ("?", "?"),
    ],
)
def test_a_sample(sample: str, told: str) -> None:
    assert labelled(sample, 0) == told
