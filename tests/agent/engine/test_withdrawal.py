import threading

import pytest

from arriero.agent.engine.withdrawal import Withdrawn, check_wanted, while_wanted


def test_what_somebody_waits_for_goes_on() -> None:
    check_wanted()
    with while_wanted(lambda: True):
        check_wanted()


def test_what_nobody_waits_for_ends() -> None:
    answers = iter([True, False])
    with while_wanted(lambda: next(answers)):
        check_wanted()
        with pytest.raises(Withdrawn):
            check_wanted()
    check_wanted()


def test_another_thread_goes_on() -> None:
    raised = []

    def compute() -> None:
        try:
            check_wanted()
        except Withdrawn as error:
            raised.append(error)

    with while_wanted(lambda: False):
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    assert not raised
