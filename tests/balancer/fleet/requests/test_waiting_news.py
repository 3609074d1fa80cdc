from arriero.balancer.fleet.requests.waiting_news import (
    LOOK_PAUSE,
    MAX_PER_PASS,
    PASS_PAUSE,
    REPEAT_AFTER,
    WaitingNews,
)
from arriero.shared.inference import RequestId, Waiting

R = RequestId("r")
FIRST, SECOND = Waiting(2, "slot"), Waiting(1, "slot")


def listening(after: float = 0.5) -> WaitingNews:
    news = WaitingNews()
    news.listens(R, after)
    news.waits(R, 10.0)
    return news


def test_there_is_nothing_to_do_while_nobody_listens() -> None:
    news = WaitingNews()
    news.waits(R, 10.0)
    assert news.next_deadline() is None
    assert news.due(99.0) == []


def test_the_first_word_comes_after_the_time_that_was_asked_for() -> None:
    news = listening(after=5.0)
    assert news.next_deadline() == 15.0
    assert news.due(14.9) == []
    assert news.due(15.0) == [R]


def test_one_that_starts_in_time_hears_nothing() -> None:
    news = listening()
    news.starts(R)
    assert news.next_deadline() is None


def test_a_change_is_told_once_a_second_at_most() -> None:
    news = listening()
    assert news.due(10.5) == [R]
    assert news.is_news(R, FIRST, 10.5)
    assert news.due(10.5 + LOOK_PAUSE - 0.1) == []
    assert news.due(10.5 + LOOK_PAUSE) == [R]
    assert news.is_news(R, SECOND, 10.5 + LOOK_PAUSE)


def test_the_same_is_told_again_after_a_while() -> None:
    news = listening()
    now = 10.5
    told = []
    while now < 10.5 + 2 * REPEAT_AFTER:
        for id in news.due(now):
            if news.is_news(id, FIRST, now):
                told.append(now)
        now += LOOK_PAUSE
    assert told == [10.5, 10.5 + REPEAT_AFTER]


def test_one_that_comes_back_hears_anew() -> None:
    news = listening()
    news.due(10.5)
    news.is_news(R, FIRST, 10.5)
    news.starts(R)
    news.waits(R, 10.6)
    assert news.next_deadline() == 10.5 + LOOK_PAUSE
    assert news.due(11.5) == [R]
    assert news.is_news(R, FIRST, 11.5)


def test_a_pass_is_bounded_and_the_rest_has_its_turn_soon() -> None:
    news = WaitingNews()
    ids = [RequestId(f"{number:04}") for number in range(2 * MAX_PER_PASS + 1)]
    for id in ids:
        news.listens(id, 0.0)
        news.waits(id, 10.0)
    seen, now = [], 10.0
    while len(seen) < len(ids):
        due = news.due(now)
        assert 0 < len(due) <= MAX_PER_PASS
        for id in due:
            news.is_news(id, FIRST, now)
        assert news.due(now) == []
        seen += due
        deadline = news.next_deadline()
        assert deadline is not None
        assert deadline >= now + PASS_PAUSE
        now += PASS_PAUSE
        news.check_integrity()
    assert seen == ids


def test_one_that_has_ended_is_forgotten() -> None:
    news = listening()
    news.forget(R)
    news.waits(R, 11.0)
    assert news.next_deadline() is None
    news.forget(R)
    news.check_integrity()
