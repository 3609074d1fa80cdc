import threading

import pytest

from arriero.agent.engine.turns import Turns
from arriero.shared.errors import EngineFailed


def test_pass_in_the_order_in_which_they_were_asked_for() -> None:
    turns = Turns()
    taken: list[int] = []
    threads = []

    def take(number: int) -> None:
        with turns:
            taken.append(number)

    with turns:
        for number in range(5):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            threads.append(thread)
            until_waiting(turns, number + 1)
        assert taken == []
    for thread in threads:
        thread.join()
    assert taken == [0, 1, 2, 3, 4]


def test_whoever_asks_again_comes_after_those_who_wait() -> None:
    turns = Turns()
    taken: list[str] = []

    def take() -> None:
        with turns:
            taken.append("other")

    thread = threading.Thread(target=take)
    with turns:
        thread.start()
        until_waiting(turns, 1)
    with turns:
        taken.append("again")
    thread.join()
    assert taken == ["other", "again"]


def test_an_error_passes_the_turn_on() -> None:
    turns = Turns()
    with pytest.raises(OSError, match="disk"), turns:
        raise OSError("disk")
    with turns:
        assert turns.num_waiting == 0


def test_after_the_last_one_there_are_no_more() -> None:
    turns = Turns()
    turns.close()
    with pytest.raises(EngineFailed, match="has stopped"), turns:
        raise AssertionError("there are no turns")
    turns.close()


def test_the_end_waits_for_who_holds_it_and_comes_before_those_behind() -> None:
    turns = Turns()
    errors: list[BaseException] = []

    def take() -> None:
        try:
            with turns:
                raise AssertionError("there are no turns")
        except EngineFailed as error:
            errors.append(error)

    closing = threading.Thread(target=turns.close)
    late = threading.Thread(target=take)
    with turns:
        closing.start()
        until_waiting(turns, 1)
        late.start()
        until_waiting(turns, 2)
    closing.join()
    late.join()
    assert len(errors) == 1


def until_waiting(turns: Turns, number: int) -> None:
    """Threads report nothing on their way into a lock, so there is only asking."""
    patience = threading.Event()
    while turns.num_waiting < number:
        patience.wait(0.001)
