"""Pages of lists."""

import pytest

from arriero.balancer.api.openai.batches.pages import (
    batch_list,
    file_list,
    file_object,
    parse_batch_page,
    parse_file_page,
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
    assert file_list([FILE, FILE], 1)["has_more"]
    assert not file_list([FILE], 1)["has_more"]
    assert batch_list([], 1)["first_id"] is None


def test_queries() -> None:
    assert parse_file_page({"limit": "5", "order": "asc"}).limit == 5
    assert parse_batch_page({}).limit == 20
    with pytest.raises(InvalidRequest, match="`limit`"):
        parse_batch_page({"limit": "101"})
    with pytest.raises(InvalidRequest, match="`order`"):
        parse_file_page({"order": "x"})
