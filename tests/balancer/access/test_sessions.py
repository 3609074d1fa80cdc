"""Sessions: found by their tokens, bounded, and over when they end."""

from dataclasses import replace

import pytest

from arriero.balancer.access.access_key import digest_of
from arriero.balancer.access.identity import Identity
from arriero.balancer.access.sessions import LIFETIME, Session, Sessions

ADA = Identity(name="ada", role="admin", digest="d1")
BOB = Identity(name="bob", role="viewer", digest="d2")


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(max_sessions=4, max_per_holder=2)


def test_a_session_is_found_by_its_token_until_it_ends(sessions: Sessions) -> None:
    session = sessions.open("token", "csrf", ADA, now=100)
    assert (session.name, session.digest, session.csrf) == ("ada", "d1", "csrf")
    assert sessions.find("token", now=100 + LIFETIME - 1) == session
    assert sessions.find("token", now=100 + LIFETIME) is None
    assert sessions.find("", now=100) is None
    assert sessions.find("another", now=100) is None


def test_no_token_is_kept(sessions: Sessions) -> None:
    sessions.open("a-secret-token", "csrf", ADA, now=100)
    assert "a-secret-token" not in repr(vars(sessions))


def test_logging_out_ends_one_and_a_key_that_ends_all_of_its_own(sessions: Sessions) -> None:
    for token, holder in (("a", ADA), ("b", ADA), ("c", BOB)):
        sessions.open(token, "csrf", holder, now=100)
    sessions.close("a")
    sessions.close("nobody's")
    assert [bool(sessions.find(each, 100)) for each in "abc"] == [False, True, True]
    sessions.end("d1")
    assert [bool(sessions.find(each, 100)) for each in "abc"] == [False, False, True]
    assert len(sessions) == 1


def test_one_key_cannot_take_the_room_of_others(sessions: Sessions) -> None:
    sessions.open("bob's", "csrf", BOB, now=100)
    for number in range(10):
        sessions.open(f"t{number}", "csrf", ADA, now=100)
    assert sessions.find("bob's", 100) is not None
    assert [bool(sessions.find(f"t{each}", 100)) for each in (7, 8, 9)] == [False, True, True]
    assert len(sessions) == 3


def test_where_there_are_too_many_the_oldest_ends(sessions: Sessions) -> None:
    for number in range(6):
        holder = Identity(name=f"n{number}", role="viewer", digest=f"d{number}")
        sessions.open(f"t{number}", "csrf", holder, now=100 + number)
    assert len(sessions) == 4
    found = [bool(sessions.find(f"t{each}", 110)) for each in range(6)]
    assert found == [False, False, True, True, True, True]


def test_what_has_expired_takes_no_room(sessions: Sessions) -> None:
    sessions.open("old", "csrf", ADA, now=0)
    sessions.open("new", "csrf", BOB, now=LIFETIME)
    assert len(sessions) == 1


def test_who_logged_in_at_another_balancer_is_found_until_that_ends(sessions: Sessions) -> None:
    theirs = Session("name", "digest", "csrf", 10.0)
    sessions.apply(digest_of("token"), theirs, now=0.0)
    assert sessions.find("token", now=9.0) == theirs
    sessions.apply(digest_of("token"), replace(theirs, expires_at=0.0), now=9.0)
    assert sessions.find("token", now=9.0) is None


def test_others_sessions_are_bounded_too() -> None:
    sessions = Sessions(max_sessions=2)
    for number in range(3):
        sessions.apply(f"{number}", Session("name", "digest", "csrf", 10.0), now=0.0)
    assert len(sessions) == 2
