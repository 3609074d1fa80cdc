"""Pages of lists."""

import pytest

from arriero.balancer.api.openai.batches.answer_types import BatchObject
from arriero.balancer.api.openai.batches.pages import (
    BatchPage,
    FilePage,
    file_object,
    page_of,
    parse_page,
)
from arriero.balancer.store.jobs.records import SavedFile
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
