"""Pages of lists."""

import pytest

from arriero.balancer.api.openai.batches.pages import (
    BatchObject,
    BatchPage,
    FilePage,
    batch_object,
    file_object,
    page_of,
    parse_page,
)
from arriero.balancer.jobs.batch import Batch, BatchCaller, Fault
from arriero.balancer.store.job_records import SavedFile
from arriero.shared.errors import InvalidRequest

FILE = SavedFile(
    id="f", owner="ann", name="n", purpose="batch", num_bytes=3, created_at=1.9, expires_at=9.9
)


def test_a_file_is_shown_without_its_owner() -> None:
    shown = file_object(FILE)
    assert (shown["bytes"], shown["created_at"], shown["expires_at"]) == (3, 1, 9)
    assert "ann" not in str(shown)


def test_one_more_than_the_page_says_that_there_is_more() -> None:
    files = [file_object(FILE)]
    assert page_of(2 * files, 1)["has_more"]
    assert not page_of(files, 1)["has_more"]
    empty: list[BatchObject] = []
    assert page_of(empty, 1)["first_id"] is None


def test_queries() -> None:
    assert parse_page(FilePage, {"limit": "5", "order": "asc"}).limit == 5
    assert parse_page(BatchPage, {}).limit == 20
    with pytest.raises(InvalidRequest, match="`limit`"):
        parse_page(BatchPage, {"limit": "101"})
    with pytest.raises(InvalidRequest, match="`order`"):
        parse_page(FilePage, {"order": "x"})


# ---- batches


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
