from arriero.agent.upstream.health import (
    FIRST_PAUSE,
    INTERVAL,
    LAST_PAUSE,
    LONGEST_REST,
    MOST_REFUSED,
    Health,
)
from arriero.shared.messages import Issue

GONE = Issue(code="upstream_unreachable", message="gone")


def up() -> Health:
    health = Health(0.0)
    health.answered(0.0)
    return health


def test_it_is_due_at_once_and_then_at_intervals() -> None:
    health = Health(5.0)
    assert (health.is_up, health.next_check) == (False, 5.0)
    health.answered(6.0)
    assert (health.is_up, health.next_check) == (True, 6.0 + INTERVAL)


def test_pauses_double_while_it_is_away() -> None:
    health, now, pauses = up(), 0.0, []
    for _ in range(9):
        health.failed(GONE, now, is_certain=True)
        pauses.append(health.next_check - now)
        now = health.next_check
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LAST_PAUSE
    assert health.issue == GONE
    health.answered(now)
    health.failed(GONE, now, is_certain=True)
    assert health.next_check == now + FIRST_PAUSE


def test_to_be_slow_once_is_no_failure() -> None:
    health = up()
    health.failed(GONE, 1.0, is_certain=False)
    assert (health.is_up, health.next_check) == (True, 1.0 + FIRST_PAUSE)
    health.answered(2.0)
    health.failed(GONE, 3.0, is_certain=False)
    assert health.is_up
    health.failed(GONE, 4.0, is_certain=False)
    assert health.issue == GONE


def test_a_suspicion_is_looked_into_at_once() -> None:
    health = up()
    health.suspected(3.0)
    assert (health.is_up, health.next_check) == (True, 3.0)


LIMITED = Issue(code="upstream_limit", message="too many requests")


def test_one_refusal_after_the_other_takes_it_away() -> None:
    health = up()
    for _ in range(MOST_REFUSED - 1):
        health.refused(LIMITED, 1.0)
        health.answered(1.0)  # it lists its models all the same
    assert health.is_up
    health.refused(LIMITED, 2.0)
    assert health.issue == LIMITED
    assert health.next_check == 2.0 + FIRST_PAUSE
    health.refused(GONE, 2.1)
    assert (health.issue, health.next_check) == (LIMITED, 2.0 + FIRST_PAUSE)
    health.answered(3.0)
    health.refused(LIMITED, 3.0)
    assert health.is_up, "they are counted anew"


def test_refusals_among_requests_that_it_takes_do_not_count() -> None:
    health = up()
    for _ in range(2 * MOST_REFUSED):
        health.refused(LIMITED, 1.0)
        health.served()
    assert health.is_up


def test_what_is_away_already_is_not_looked_at_for_each_request() -> None:
    health = up()
    health.failed(GONE, 1.0, is_certain=True)
    health.suspected(1.1)
    assert health.next_check == 1.0 + FIRST_PAUSE


def test_one_that_asks_for_a_pause_gets_it_and_is_not_tried_anew() -> None:
    health = up()
    health.rests(LIMITED, 20.0, 1.0)
    assert (health.issue, health.next_check) == (LIMITED, 21.0)
    health.answered(2.0)  # a look that was under way
    assert (health.is_up, health.next_check) == (False, 21.0)
    health.rests(LIMITED, 5.0, 3.0)
    assert health.next_check == 21.0
    health.answered(21.0)
    assert (health.is_up, health.was_away) == (True, False)


def test_a_pause_has_bounds() -> None:
    health = up()
    health.rests(LIMITED, 0.0, 1.0)
    assert health.next_check == 1.0 + FIRST_PAUSE
    health.rests(LIMITED, 86_400.0, 1.0)
    assert health.next_check == 1.0 + LONGEST_REST


def test_one_that_is_away_and_asks_for_a_pause_is_tried_anew() -> None:
    health = up()
    health.failed(GONE, 1.0, is_certain=True)
    health.rests(LIMITED, 9.0, 1.0)
    assert (health.issue, health.next_check, health.was_away) == (GONE, 10.0, True)
    health.failed(GONE, 2.0, is_certain=True)
    assert health.next_check == 10.0
