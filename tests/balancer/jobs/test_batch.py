"""A batch's states, each reached only from where it may be."""

import pytest

from arriero.balancer.jobs.batch import (
    MAX_FAULTS,
    Batch,
    BatchCaller,
    Fault,
    from_document,
    to_document,
)
from arriero.shared.errors import Conflict

NEW = Batch(
    id="batch_1",
    endpoint="/v1/completions",
    input_file="file-1",
    completion_window="24h",
    caller=BatchCaller(name="ann", owner="ann@1", address="127.0.0.1"),
    created_at=10.0,
    expires_at=110.0,
    metadata={"a": "b"},
)
RUNNING = NEW.begun(5, 11.0)


def ended(batch: Batch) -> Batch:
    return batch.ended(
        20.0, num_completed=4, num_failed=1, output_file="file-o", error_file="file-e"
    )


def test_all_goes_well() -> None:
    last = ended(RUNNING.finalizing(19.0))
    assert (last.status, last.num_lines, last.num_completed, last.num_failed) == (
        *("completed", 5),
        *(4, 1),
    )
    assert (last.in_progress_at, last.finalizing_at, last.completed_at) == (11.0, 19.0, 20.0)
    assert last.has_ended
    assert not RUNNING.has_ended


def test_one_that_is_cancelled_ends_with_what_there_is() -> None:
    for batch in (NEW, RUNNING):
        cancelling = batch.cancelling(12.0)
        assert (cancelling.status, cancelling.stop) == ("cancelling", "cancelled")
        assert cancelling.cancelling(13.0) == cancelling, "once is enough"
        assert cancelling.finalizing(14.0) == cancelling
        assert (ended(cancelling).status, ended(cancelling).cancelled_at) == ("cancelled", 20.0)


@pytest.mark.parametrize("batch", [RUNNING.finalizing(19.0), ended(RUNNING.finalizing(19.0))])
def test_it_can_be_too_late_to_cancel(batch: Batch) -> None:
    with pytest.raises(Conflict, match=f"the batch is {batch.status}"):
        batch.cancelling(30.0)


def test_its_time_can_be_over() -> None:
    assert RUNNING.expiring(109.9) == RUNNING
    over = RUNNING.expiring(110.0)
    assert (over.status, over.stop) == ("in_progress", "expired")
    assert ended(over.finalizing(111.0)).status == "expired"
    cancelling = RUNNING.cancelling(12.0)
    assert cancelling.expiring(200.0) == cancelling


def test_an_input_can_be_refused() -> None:
    failed = NEW.failed(tuple(Fault(code="x", message="y", line=n) for n in range(200)), 12.0)
    assert (failed.status, failed.failed_at, len(failed.faults)) == ("failed", 12.0, MAX_FAULTS)
    with pytest.raises(ValueError, match="batch_1 is failed"):
        failed.failed((), 13.0)


def test_no_state_is_left_out() -> None:
    with pytest.raises(ValueError, match="batch_1 is in_progress, not validating"):
        RUNNING.begun(5, 12.0)
    with pytest.raises(ValueError, match="batch_1 is validating, not in_progress"):
        NEW.finalizing(12.0)
    with pytest.raises(ValueError, match="batch_1 is in_progress, not finalizing or cancelling"):
        ended(RUNNING)


def test_it_is_saved_whole() -> None:
    refused = NEW.failed((Fault(code="x", message="y", line=3),), 12.0)
    for batch in (NEW, RUNNING, RUNNING.cancelling(12.0), ended(RUNNING.finalizing(19.0)), refused):
        assert from_document(to_document(batch)) == batch
