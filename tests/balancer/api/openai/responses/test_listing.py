"""Pages of input items."""

import pytest

from arriero.balancer.api.openai.responses.items import InputMessage
from arriero.balancer.api.openai.responses.listing import Page, input_list, parse_page
from arriero.shared.errors import InvalidRequest

ITEMS = tuple(InputMessage(id=id, role="user", content=id) for id in "abcd")


def ids(page: Page) -> list[str]:
    return [item["id"] for item in input_list(ITEMS, page)["data"]]


def test_the_latest_come_first() -> None:
    assert ids(Page()) == ["d", "c", "b", "a"]
    assert ids(Page(order="asc")) == ["a", "b", "c", "d"]


def test_one_page_follows_another() -> None:
    first = input_list(ITEMS, Page(limit=3))
    assert (first["first_id"], first["last_id"], first["has_more"]) == ("d", "b", True)
    assert ids(Page(limit=3, after=first["last_id"])) == ["a"]
    assert not input_list(ITEMS, Page(limit=3, after="b"))["has_more"]


def test_nothing() -> None:
    assert input_list((), Page())["data"] == []


def test_the_query() -> None:
    assert parse_page({"limit": "2", "order": "asc", "after": "x", "include[]": "y"}) == Page(
        limit=2, order="asc", after="x"
    )


@pytest.mark.parametrize(
    ("query", "field"), [({"limit": "0"}, "limit"), ({"order": "up"}, "order"), ({"x": "1"}, "x")]
)
def test_a_wrong_query_is_named(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_page(query)
    assert caught.value.field == field


def test_after_must_be_there() -> None:
    with pytest.raises(InvalidRequest, match="no item 'z'"):
        input_list(ITEMS, Page(after="z"))
