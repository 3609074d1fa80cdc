"""What agents say of their engines, at the scrape."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.balancer.fleet.view import FleetView
from arriero.balancer.management.metrics.fleet_collector import (
    EventNumbers,
    FleetCollector,
    engine_metrics,
)
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.shared.reports.statistics import (
    Cells,
    DeviceMemory,
    DiskUse,
    Fetches,
    Histogram,
    Statistics,
)
from tests.balancer.management.views import agent_view, fleet_view

SAID = Statistics(
    num_running=2,
    num_waiting=1,
    num_commands=7,
    cells=Cells(total=100, used=30, kept=20),
    num_preemptions=3,
    num_grammars=2,
    num_embedding_cells=640,
    num_draft_cells=256,
    num_media_bytes=4096,
    fetches=Fetches(num=5, failed=2, tokens=900, bytes=10**6, seconds=1.5, lent=3),
    disk=DiskUse(
        blocks=11,
        bytes=10**9,
        cells=2816,
        keys=5,
        read=7,
        tokens=1792,
        written=8,
        failed_reads=1,
        failed_writes=2,
    ),
    cached_tokens=40,
    computed_tokens=60,
    completion_tokens=70,
    drafted_tokens=9,
    accepted_tokens=6,
    decode_tokens=69,
    decode_seconds=3.0,
    prefill_tokens=50,
    prefill_seconds=0.5,
    busy_seconds=7.0,
    decode_tokens_per_second=23.0,
    average_running=1.5,
    stalls=Histogram(bounds=(0.1, 1.0), counts=(4, 1, 2), seconds=9.5),
)


class Scraped:
    def __init__(self, view: FleetView) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Engines(view))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"arriero_agent_{name}", {"agent": "a", **labels})


class _Engines(Collector):
    def __init__(self, view: FleetView) -> None:
        self._view = view

    def collect(self):  # type: ignore[no-untyped-def]
        return engine_metrics(self._view)


@pytest.fixture
def scraped() -> Scraped:
    return Scraped(fleet_view(agent_view("a", statistics=SAID), agent_view("b")))


def test_cells_and_sequences_by_state(scraped: Scraped) -> None:
    assert scraped.value("kv_cells", state="used") == 30
    assert scraped.value("kv_cells", state="kept") == 20
    assert scraped.value("kv_cells", state="free") == 50
    assert scraped.value("sequences", state="running") == 2
    assert scraped.value("sequences", state="waiting") == 1
    assert scraped.value("engine_commands") == 7


def test_counts(scraped: Scraped) -> None:
    assert scraped.value("prompt_tokens_total", source="cached") == 40
    assert scraped.value("prompt_tokens_total", source="computed") == 60
    assert scraped.value("completion_tokens_total") == 70
    assert scraped.value("drafted_tokens_total", outcome="accepted") == 6
    assert scraped.value("drafted_tokens_total", outcome="rejected") == 3
    assert scraped.value("step_tokens_total", step="decode") == 69
    assert scraped.value("step_tokens_total", step="prefill") == 50
    assert scraped.value("step_seconds_total", step="decode") == 3.0
    assert scraped.value("step_seconds_total", step="prefill") == 0.5
    assert scraped.value("busy_seconds_total") == 7.0
    assert scraped.value("preemptions_total") == 3
    assert scraped.value("grammars") == 2
    assert scraped.value("embedding_cells") == 640
    assert scraped.value("draft_cells") == 256
    assert scraped.value("media_cache_bytes") == 4096
    assert scraped.value("prefix_fetches_total", outcome="fetched") == 5
    assert scraped.value("prefix_fetches_total", outcome="failed") == 2
    assert scraped.value("prefix_fetched_tokens_total") == 900
    assert scraped.value("prefixes_lent_total") == 3
    assert scraped.value("disk_cache_blocks") == 11
    assert scraped.value("disk_cache_bytes") == 10**9
    assert scraped.value("disk_cache_cells") == 2816
    assert scraped.value("disk_cache_keys") == 5
    assert scraped.value("disk_cache_reads_total", outcome="read") == 7
    assert scraped.value("disk_cache_reads_total", outcome="failed") == 1
    assert scraped.value("disk_cache_writes_total", outcome="written") == 8
    assert scraped.value("disk_cache_writes_total", outcome="failed") == 2
    assert scraped.value("disk_cache_read_tokens_total") == 1792


def test_a_rate_that_was_not_measured_has_no_series(scraped: Scraped) -> None:
    assert scraped.value("decode_tokens_per_second") == 23.0
    assert scraped.value("average_sequences") == 1.5
    assert scraped.value("prefill_tokens_per_second") is None


def test_memory_of_devices_is_that_of_hosts_and_not_added_up() -> None:
    """Agents of one name are on one host."""
    gpu = DeviceMemory(name="CUDA0", kind="gpu", total=24, free=4, others=3, temperature=61.5)
    host = DeviceMemory(name="CPU", kind="cpu", total=60, free=50, use=0.25)
    said = Statistics(devices=(host, gpu))
    agents = [replace(agent_view(id, statistics=said), name="box") for id in ("a", "b")]
    registry = Scraped(fleet_view(*agents)).registry
    sizes = {
        kind: registry.get_sample_value(
            "arriero_device_memory_bytes", {"host": "box", "device": "CUDA0", "kind": kind}
        )
        for kind in ("total", "free", "used", "others")
    }
    assert sizes == {"total": 24, "free": 4, "used": 20, "others": 3}
    use, degrees = "arriero_device_use_ratio", "arriero_device_temperature_celsius"
    on_host, on_gpu = ({"host": "box", "device": name} for name in ("CPU", "CUDA0"))
    assert registry.get_sample_value(use, on_host) == 0.25
    assert registry.get_sample_value(use, on_gpu) is None, "the system does not tell"
    assert registry.get_sample_value(degrees, on_gpu) == 61.5


def test_stalls_are_a_cumulative_histogram(scraped: Scraped) -> None:
    assert scraped.value("stall_seconds_bucket", le="0.1") == 4
    assert scraped.value("stall_seconds_bucket", le="1.0") == 5
    assert scraped.value("stall_seconds_bucket", le="+Inf") == 7
    assert scraped.value("stall_seconds_count") == 7
    assert scraped.value("stall_seconds_sum") == 9.5


def test_an_agent_that_has_said_nothing_has_no_series(scraped: Scraped) -> None:
    assert scraped.value("preemptions_total", agent="b") is None


def test_agents_of_one_name_are_added_up_whatever_their_buckets() -> None:
    other = replace(SAID, stalls=Histogram(bounds=(0.5,), counts=(10, 20), seconds=0.5))
    twins = fleet_view(
        agent_view("a", id="1", statistics=SAID), agent_view("a", id="2", statistics=other)
    )
    scraped = Scraped(twins)
    assert scraped.value("kv_cells", state="used") == 60
    assert scraped.value("decode_tokens_per_second") == 46.0
    assert scraped.value("stall_seconds_bucket", le="0.1") == 4
    assert scraped.value("stall_seconds_bucket", le="0.5") == 14
    assert scraped.value("stall_seconds_bucket", le="1.0") == 15
    assert scraped.value("stall_seconds_bucket", le="+Inf") == 37
    assert scraped.value("stall_seconds_sum") == 10.0


def test_cells_that_do_not_add_up_leave_none_free() -> None:
    said = replace(SAID, cells=Cells(total=10, used=10, kept=5))
    assert (
        Scraped(fleet_view(agent_view("a", statistics=said))).value("kv_cells", state="free") == 0
    )


def test_the_strict_format_takes_all_of_it() -> None:
    metrics = Metrics()
    view = fleet_view(agent_view("a", statistics=SAID))
    collector = FleetCollector(lambda: view, backlog=AgentBacklog, events=EventNumbers)
    metrics.registry.register(collector)
    body, _ = metrics.render("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"arriero_agent_stall_seconds", "arriero_agent_kv_cells"} <= names
