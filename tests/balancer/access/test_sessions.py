"""Sessions: found by their tokens, bounded, and over when they end."""

from dataclasses import replace

import pytest

from arriero.balancer.access.identity import Identity
from arriero.balancer.access.sessions import LIFETIME, Session, Sessions

ADA = Identity(name="ada", role="admin", digest="d1")
BOB = Identity(name="bob", role="viewer", digest="d2")


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(max_sessions=4, max_per_holder=2)


def opened(sessions: Sessions, token: str, holder: Identity, now: float) -> list[str]:
    """The ids of those that are over by that."""
    return [each.id for each in sessions.put(sessions.made(token, holder, now), now)]


def test_a_session_is_found_by_its_token_until_it_ends(sessions: Sessions) -> None:
    assert opened(sessions, "token", ADA, 100) == []
    found = sessions.find("token", now=100 + LIFETIME - 1)
    assert found == Session("token", "ada", "d1", 100 + LIFETIME)
    assert sessions.next_deadline() == 100 + LIFETIME
    assert sessions.find("token", now=100 + LIFETIME) is None
    assert sessions.find("another", now=100) is None
    assert sessions.due(now=100 + LIFETIME) == [found]
    assert sessions.next_deadline() is None


def test_logging_out_ends_one_and_a_key_that_ends_all_of_its_own(sessions: Sessions) -> None:
    for token, holder in (("a", ADA), ("b", ADA), ("c", BOB)):
        opened(sessions, token, holder, 100)
    assert sessions.close("a") is not None and sessions.close("nobody's") is None
    assert [bool(sessions.find(each, 100)) for each in "abc"] == [False, True, True]
    sessions.end("d1")
    assert [bool(sessions.find(each, 100)) for each in "abc"] == [False, False, True]
    assert len(sessions) == 1


def test_one_key_cannot_take_the_room_of_others(sessions: Sessions) -> None:
    opened(sessions, "bob's", BOB, 100)
    over = [opened(sessions, f"t{number}", ADA, 100) for number in range(4)]
    assert over == [[], [], ["t0"], ["t1"]]
    assert sessions.find("bob's", 100) is not None and len(sessions) == 3


def test_where_there_are_too_many_the_oldest_ends(sessions: Sessions) -> None:
    holders = [Identity(name=f"n{each}", role="viewer", digest=f"d{each}") for each in range(6)]
    over = [opened(sessions, f"t{n}", each, 100 + n) for n, each in enumerate(holders)]
    assert over == [[], [], [], [], ["t0"], ["t1"]]


def test_of_too_many_the_oldest_of_whoever_has_most_ends(sessions: Sessions) -> None:
    opened(sessions, "bob's", BOB, 100)
    for number in range(2):
        opened(sessions, f"ada's {number}", ADA, 101)
    cy = Identity(name="cy", role="viewer", digest="d-cy")
    assert opened(sessions, "cy's", cy, 102) == []
    assert opened(sessions, "cy's second", cy, 103) == ["ada's 0"]


def test_what_has_expired_takes_no_room(sessions: Sessions) -> None:
    opened(sessions, "old", ADA, 0)
    assert opened(sessions, "new", BOB, LIFETIME) == ["old"]
    assert len(sessions) == 1


def test_the_store_says_who_is_logged_in_but_for_those_it_never_had(sessions: Sessions) -> None:
    here = sessions.made("here", ADA, 0)
    alone = replace(sessions.made("alone", BOB, 0), is_saved=False)
    sessions.put(here, 0)
    sessions.put(alone, 0)
    there = Session("there", "bob", "d2", 10.0)
    assert sessions.replace([there, Session("past", "bob", "d2", 5.0)], now=5.0) == [here]
    found = [bool(sessions.find(each, 5.0)) for each in ("here", "alone", "there", "past")]
    assert found == [False, True, True, False]


def test_those_of_the_store_are_bounded_too() -> None:
    sessions = Sessions(max_sessions=2)
    sessions.replace([Session(f"{n}", "name", "digest", 10.0 + n) for n in range(3)], now=0.0)
    assert [bool(sessions.find(f"{n}", 0.0)) for n in range(3)] == [False, True, True]
