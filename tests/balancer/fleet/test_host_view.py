"""Several agents of one host, seen as one."""

from dataclasses import replace
from typing import Any

from arriero.balancer.fleet.core.fleet_views import host_view, total_statistics
from arriero.balancer.fleet.view import AgentView, ServedView, SlotsView
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assignment, Work
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Cells, DeviceMemory, DiskUse, Histogram, Statistics

BROKEN = Issue(code="load_failed", message="broken")
INFO = ModelInfo(name="chat", architecture="llama", parameters=1, size_bytes=2, context_size=3)
LOADING = Work(revision=1, assignment=Assignment(name="b", source="file:///b"), phase="loading")


def view(**fields: Any) -> AgentView:
    common: dict[str, Any] = {
        "id": AgentId("host"),
        "name": "box",
        "labels": {},
        "version": "0",
        "state": "idle",
        "slots": SlotsView(total=0, busy=0),
        "model": None,
        "issues": (),
        "statistics": None,
        "num_tokens": 0,
        "connected_seconds": 1.0,
    }
    return AgentView(**common | fields)


def served(name: str, busy: int = 0) -> ServedView:
    return ServedView(name=name, state="ready", slots=SlotsView(total=2, busy=busy))


def test_one_agent_is_what_it_is() -> None:
    assert host_view([view(num_tokens=3)]) == view(num_tokens=3)


def test_slots_and_numbers_are_of_all_and_the_first_with_a_model_speaks() -> None:
    spare = view(connected_seconds=9.0, issues=(BROKEN,))
    chat = view(
        state="ready",
        model=INFO,
        slots=SlotsView(total=2, busy=1),
        models=(served("chat", 1),),
        num_tokens=5,
        issues=(BROKEN,),
    )
    loading = view(state="loading", work=LOADING, models=(served("b"),), num_tokens=2)
    found = host_view([spare, chat, loading])
    assert (found.state, found.model, found.slots) == ("ready", INFO, SlotsView(total=2, busy=1))
    assert [each.name for each in found.models] == ["chat", "b"]
    assert (found.num_tokens, found.connected_seconds, found.issues) == (7, 9.0, (BROKEN,))
    assert found.work == LOADING, "what is in motion is shown"


def test_a_state_is_the_one_that_says_most() -> None:
    for states, expected in {
        ("idle", "idle"): "idle",
        ("idle", "loading"): "loading",
        ("failed", "ready"): "ready",
        ("drained", "draining"): "draining",
    }.items():
        assert host_view([view(state=each) for each in states]).state == expected


def test_statistics_are_added_up_where_they_are_known() -> None:
    gpu = DeviceMemory(name="CUDA0", kind="gpu", total=10, free=4)
    one = Statistics(
        num_running=1,
        cells=Cells(total=10, used=2),
        disk=DiskUse(read=1),
        devices=(gpu,),
        decode_tokens_per_second=2.5,
        stalls=Histogram(bounds=(1.0,), counts=(1, 2), seconds=3.0),
    )
    other = Statistics(num_running=2, cells=Cells(total=5), num_commands=3, devices=(gpu,))
    assert total_statistics([one, other]) == replace(
        one, num_running=3, cells=Cells(total=15, used=2), num_commands=3
    )
    twice = total_statistics([one, one])
    assert twice.stalls == Histogram(bounds=(1.0,), counts=(2, 4), seconds=6.0)
    assert twice.disk == DiskUse(read=2) and twice.devices == (gpu,)
    assert twice.decode_tokens_per_second == 5.0


def test_how_many_ran_at_once_is_known_of_each_engine_alone() -> None:
    busy, calm = Statistics(average_running=3.0), Statistics(average_running=1.5)
    assert total_statistics([busy]).average_running == 3.0
    assert total_statistics([busy, calm]).average_running is None
