"""What the parameters mean, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.management.history.history_query import (
    HistoryQuery,
    cursor_after,
    ended_filter,
)
from arriero.balancer.store.records import EndingFilter, EndingPlace, place_of
from arriero.shared.errors import InvalidRequest
from tests.balancer.store.test_history_writer import ending

NOW = 1_700_000_000.5


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ({}, HistoryQuery(1_699_999_100, 5, None)),
        ({"since": "1h"}, HistoryQuery(1_699_996_400, 15, None)),
        ({"since": "60"}, HistoryQuery(1_699_999_940, 1, None)),
        ({"since": "1699999990", "by": "agent"}, HistoryQuery(1_699_999_990, 1, "agent")),
        ({"since": "1h", "step": "2s"}, HistoryQuery(1_699_996_400, 2, None)),
        ({"since": "3599", "step": "1"}, HistoryQuery(1_699_996_401, 1, None)),
        ({"since": "12m", "step": "2", "by": "model"}, HistoryQuery(1_699_999_280, 2, "model")),
        ({"by": "agent", "name": "ana"}, HistoryQuery(1_699_999_100, 5, "agent", "ana")),
        ({"since": "1000000000"}, HistoryQuery(1_699_913_600, 300, None)),
    ],
)
def test_what_is_meant(query: dict[str, str], meant: HistoryQuery) -> None:
    assert HistoryQuery.of(query, NOW) == meant


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ({"sinse": "1"}, "sinse", "not one of since, step, by, name"),
        ({"name": "ana"}, "name", "`name` needs `by`"),
        ({"by": "caller"}, "by", "must be agent or model, not 'caller'"),
        (
            {"since": "soon"},
            "since",
            "such as 10, 500ms, 2m, 12h or 7d, or a time in seconds since 1970",
        ),
        ({"since": "1700000002"}, "since", "must not be in the future"),
        ({"since": "9" * 5000}, "since", "must be a duration"),
        ({"step": "0"}, "step", "must be whole seconds"),
        ({"step": "1.5"}, "step", "must be whole seconds"),
        ({"step": "nan"}, "step", "must be a duration"),
        ({"since": "2h", "step": "1"}, "step", "must be at least 3 for so long a time"),
        ({"since": "1h", "step": "1", "by": "agent"}, "step", "must be at least 6"),
    ],
)
def test_what_is_refused(query: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        HistoryQuery.of(query, NOW)
    assert refused.value.field == field
    assert said in refused.value.message


def test_which_ended_requests() -> None:
    assert ended_filter({"state": "ended"}) == EndingFilter(limit=200)
    query = {"model": "m", "agent": "a", "caller": "c", "code": "stop", "limit": "3"}
    assert ended_filter(query) == EndingFilter(
        model="m", agent="a", caller="c", code="stop", limit=3
    )


@given(st.floats(0, 2**40), st.text(min_size=1))
def test_the_next_page_begins_after_the_last_one(ended_at: float, id: str) -> None:
    last = replace(ending(id), ended_at=ended_at)
    assert ended_filter({"before": cursor_after(last)}).before == place_of(last)


def test_a_place_as_it_is_written() -> None:
    assert ended_filter({"before": "1.5,a,b"}).before == EndingPlace(1.5, "a,b")


@pytest.mark.parametrize(
    "query",
    [
        *({"limit": limit} for limit in ("0", "1001", "x")),
        *({"before": before} for before in ("", "1.5", "1.5,", ",a", "x,a", "inf,a", "nan,a")),
        {"colour": "r"},
    ],
)
def test_what_is_refused_of_ended_requests(query: dict[str, str]) -> None:
    [field] = query
    with pytest.raises(InvalidRequest) as refused:
        ended_filter(query)
    assert refused.value.field == field
