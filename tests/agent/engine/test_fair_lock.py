import threading

import pytest

from arriero.agent.engine.fair_lock import FairLock
from arriero.shared.errors import EngineFailed
from tests.waiting import HANGS


def test_pass_in_the_order_in_which_they_were_asked_for() -> None:
    lock = FairLock()
    taken: list[int] = []
    threads = []

    def take(number: int) -> None:
        with lock:
            taken.append(number)

    with lock:
        for number in range(5):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            threads.append(thread)
            until_waiting(lock, number + 1)
        assert taken == []
    for thread in threads:
        thread.join()
    assert taken == [0, 1, 2, 3, 4]


def test_a_thread_that_asks_again_comes_after_those_that_wait() -> None:
    lock = FairLock()
    taken: list[str] = []

    def take() -> None:
        with lock:
            taken.append("other")

    thread = threading.Thread(target=take)
    with lock:
        thread.start()
        until_waiting(lock, 1)
    with lock:
        taken.append("again")
    thread.join()
    assert taken == ["other", "again"]


def test_an_error_passes_the_turn_on() -> None:
    lock = FairLock()
    with pytest.raises(OSError, match="disk"), lock:
        raise OSError("disk")
    with lock:
        assert lock.num_waiting == 0


def test_after_the_last_one_there_are_no_more() -> None:
    lock = FairLock()
    lock.close()
    with pytest.raises(EngineFailed, match="has stopped"), lock:
        raise AssertionError("there are no turns")
    lock.close()


def test_the_end_waits_for_the_holder_and_comes_before_those_behind() -> None:
    lock = FairLock()
    errors: list[BaseException] = []

    def take() -> None:
        try:
            with lock:
                raise AssertionError("there are no turns")
        except EngineFailed as error:
            errors.append(error)

    closing = threading.Thread(target=lock.close)
    late = threading.Thread(target=take)
    with lock:
        closing.start()
        until_waiting(lock, 1)
        late.start()
        until_waiting(lock, 2)
    closing.join()
    late.join()
    assert len(errors) == 1


def test_sharing_takes_no_turn_and_the_end_waits_for_it() -> None:
    lock = FairLock()
    ends: list[str] = []

    def close() -> None:
        lock.close()
        ends.append("closed")

    closing = threading.Thread(target=close)
    with lock, lock.sharing():
        pass
    with lock.sharing():
        closing.start()
        until_over(lock)
        ends.append("shared no longer")
    closing.join(HANGS)
    assert ends == ["shared no longer", "closed"]


def until_over(lock: FairLock) -> None:
    """Until nothing is granted any more."""
    patience = threading.Event()
    with pytest.raises(EngineFailed, match="has stopped"):
        while True:
            with lock.sharing():
                patience.wait(0.001)


def until_waiting(lock: FairLock, number: int) -> None:
    """Threads report nothing on their way into a lock, so there is only asking."""
    patience = threading.Event()
    while lock.num_waiting < number:
        patience.wait(0.001)
