"""Ended requests: how many are kept, what of them, and which a reader gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.history.endings import MAX_MESSAGE, Endings, ended_request, latest
from arriero.balancer.store.records import MAX_ENDINGS, EndedRequest, EndingFilter, place_of
from arriero.shared.errors import EngineFailed
from tests.balancer.history.builders import ending


def filled() -> Endings:
    endings = Endings()
    endings.add(ended_request(ending("a"), 1.0))
    endings.add(ended_request(ending("b", "length", agent="luz"), 2.0))
    endings.add(ended_request(ending("c", model="other"), 3.0))
    return endings


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (EndingFilter(), "cba"),
        (EndingFilter(limit=2), "cb"),
        (EndingFilter(model="tiny"), "ba"),
        (EndingFilter(model="tiny", limit=1), "b"),
        (EndingFilter(agent="luz"), "b"),
        (EndingFilter(code="stop"), "ca"),
        (EndingFilter(caller="anonymous", code="length"), "b"),
        (EndingFilter(caller="ana"), ""),
    ],
)
def test_the_latest_come_first(wanted: EndingFilter, ids: str) -> None:
    assert "".join(each.id for each in filled().choose(wanted)) == ids


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdef")), max_size=20, unique=True),
    st.integers(1, 4),
    st.integers(0, 20),
)
def test_few_are_looked_at_and_the_order_is_the_same(
    ended: list[tuple[int, str]], limit: int, begin: int
) -> None:
    """Also of those that ended at once."""
    endings = Endings()
    for at, id in sorted(ended, key=lambda each: each[0]):
        endings.add(ended_request(ending(f"{id}{at}"), at))
    whole = latest(endings.unwritten, EndingFilter(limit=100))
    before = place_of(whole[begin - 1]) if 0 < begin <= len(whole) else None
    rest = whole[begin:] if before is not None else whole
    assert endings.choose(EndingFilter(limit=limit, before=before)) == rest[:limit]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcdef")), max_size=20),
    st.integers(1, 4),
)
def test_pages_over_several_sources_have_each_request_once(
    ended: list[tuple[int, str]], limit: int
) -> None:
    """Each of two sources gives a page of its own, and both have some of the same."""
    whole = [ended_request(ending(f"{id}{at}"), at / 4) for at, id in ended]
    sources = whole[::2], whole[1:] + whole[:3]
    seen: list[EndedRequest] = []
    before = None
    while True:
        wanted = EndingFilter(limit=limit, before=before)
        page = latest([each for source in sources for each in latest(source, wanted)], wanted)
        if not page:
            break
        seen += page
        before = place_of(page[-1])
    assert [each.id for each in seen] == sorted(
        {each.id for each in whole}, key=lambda id: (-int(id[1]), id)
    )


def test_each_is_written_once() -> None:
    endings = filled()
    assert [each.id for each in endings.unwritten] == ["a", "b", "c"]
    assert [each.id for each in endings.take_unwritten()] == ["a", "b", "c"]
    assert not endings.unwritten
    assert endings.take_unwritten() == []
    assert len(endings) == 3


def test_what_was_restored_is_not_written_again() -> None:
    endings = Endings()
    endings.restore([ended_request(ending("a"), 1.0)])
    assert endings.take_unwritten() == []
    assert [each.id for each in endings.choose(EndingFilter())] == ["a"]


def test_their_number_is_bounded() -> None:
    endings = Endings()
    for number in range(MAX_ENDINGS + 5):
        endings.add(ended_request(ending(str(number)), number))
    assert len(endings) == len(endings.take_unwritten()) == MAX_ENDINGS


def test_what_is_kept_of_a_request() -> None:
    error = EngineFailed("out of luck")
    assert ended_request(ending(code="engine_failed", error=error), 5.0) == EndedRequest(
        id="r",
        ended_at=5.0,
        kind="generate",
        code="engine_failed",
        caller="anonymous",
        model="tiny",
        agent="ana",
        error="out of luck",
        prompt_tokens=10,
        cached_tokens=4,
        completion_tokens=7,
        reasoning_tokens=2,
        queue_ms=1.0,
        first_token_ms=20.0,
        total_ms=300.0,
        moves=1,
    )


def test_what_a_client_wrote_is_cut() -> None:
    kept = ended_request(ending(model="m" * 10_000, error=EngineFailed("e" * 10_000)), 0)
    assert kept.model == "m" * 300
    assert kept.error == "e" * MAX_MESSAGE
