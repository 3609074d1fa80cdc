from typing import Any

import pytest

from bench.page import Task, main_tasks


def named(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def task(pid: int, tid: int, processor: int, elapsed: int) -> dict[str, Any]:
    name = "ThreadControllerImpl::RunTask"
    times = {"tdur": processor, "dur": elapsed}
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, **times}


def test_only_tasks_of_the_busiest_pages_main_thread_count() -> None:
    events = [
        named(1, 1, "CrRendererMain"),
        named(1, 2, "Compositor"),
        named(3, 1, "CrRendererMain"),
        task(1, 1, 2000, 9000),
        task(1, 1, 51_000, 60_000),
        task(1, 2, 90_000, 90_000),
        task(3, 1, 70_000, 70_000),
    ]
    assert main_tasks(events) == [Task(2.0, 9.0), Task(51.0, 60.0)]


def test_a_trace_without_tasks_is_no_proof_of_a_quick_page() -> None:
    with pytest.raises(RuntimeError, match="no tasks"):
        main_tasks([named(1, 1, "CrRendererMain")])
