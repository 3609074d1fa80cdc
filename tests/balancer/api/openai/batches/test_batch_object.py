"""A batch as it is shown."""

from arriero.balancer.api.openai.batches.batch_object import batch_object
from arriero.balancer.jobs.core.batch import Batch, BatchCaller, Fault

BATCH = Batch(
    id="batch_1",
    endpoint="/v1/completions",
    input_file="file-1",
    completion_window="24h",
    caller=BatchCaller(name="ann", owner="ann@1", address="127.0.0.1"),
    created_at=10.7,
    expires_at=110.0,
)


def test_times_are_whole_and_the_caller_is_not_shown() -> None:
    shown = batch_object(BATCH.begun(9, 11.9), 3, 2)
    assert (shown["created_at"], shown["in_progress_at"], shown["completed_at"]) == (10, 11, None)
    assert shown["request_counts"] == {"total": 9, "completed": 3, "failed": 2}
    assert shown["errors"] is None
    assert "ann" not in str(shown)


def test_faults_are_listed() -> None:
    shown = batch_object(BATCH.failed((Fault(code="c", message="m", line=4),), 12.0), 0, 0)
    assert shown["errors"] == {
        "object": "list",
        "data": [{"code": "c", "message": "m", "param": None, "line": 4}],
    }
