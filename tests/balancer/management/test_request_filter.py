"""Which requests are listed, and what a parameter may be."""

from dataclasses import replace

import pytest

from arriero.balancer.management.request_filter import DEFAULT_LIMIT, MAX_LIMIT, RequestFilter
from arriero.shared.errors import InvalidRequest
from tests.balancer.management.views import request_view

REQUESTS = [
    replace(request_view("1"), state="queued", model="m"),
    replace(request_view("2"), state="assigned"),
    replace(request_view("3"), state="streaming", model="m"),
]


def chosen(**query: str) -> list[str]:
    return [request.id for request in RequestFilter.of(query).choose(iter(REQUESTS))]


def test_everything_is_listed_unless_asked_otherwise() -> None:
    assert chosen() == ["1", "2", "3"]


def test_by_state() -> None:
    assert chosen(state="queued") == ["1"]
    assert chosen(state="running") == ["2", "3"]
    assert chosen(state="streaming") == ["3"]


def test_by_model() -> None:
    assert chosen(model="m") == ["1", "3"]
    assert chosen(model="m", state="running") == ["3"]


def test_by_caller() -> None:
    assert chosen(caller="alice") == ["1", "2", "3"]
    assert chosen(caller="bob") == []


def test_the_number_is_bounded() -> None:
    assert chosen(limit="2") == ["1", "2"]
    endless = iter(lambda: REQUESTS[0], None)
    assert len(list(RequestFilter.of({}).choose(endless))) == DEFAULT_LIMIT
    assert len(list(RequestFilter.of({"limit": str(MAX_LIMIT)}).choose(endless))) == MAX_LIMIT


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"state": "ended"}, "`state` must be one of assigned, queued, running, streaming"),
        ({"limit": "0"}, "`limit` must be a number from 1 to 1000, not '0'"),
        ({"limit": "1001"}, "from 1 to 1000"),
        ({"limit": "²"}, "from 1 to 1000"),
        ({"limit": "9" * 9999}, "from 1 to 1000"),
        ({"colour": "red"}, "`colour` is not one of state, model, caller, limit"),
    ],
)
def test_what_is_wrong_is_named(query: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RequestFilter.of(query)
    assert message in caught.value.message
    assert caught.value.field == next(iter(query))
