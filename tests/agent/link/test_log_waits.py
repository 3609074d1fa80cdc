from arriero.agent.link.decisions import TellLog
from arriero.agent.link.log_waits import MAX_WAITS, LogWaits
from arriero.shared.inference import RequestId

A, B = RequestId("a"), RequestId("b")


def test_all_that_wait_are_read_when_something_was_logged() -> None:
    waits = LogWaits()
    waits.add(A, 3)
    waits.add(B, 5)
    assert waits.reads() == [TellLog(A, 3), TellLog(B, 5)]
    waits.discard(A)
    waits.discard(A)
    assert waits.reads() == [TellLog(B, 5)]
    assert A not in waits and B in waits
    waits.clear()
    assert len(waits) == 0


def test_they_are_bounded() -> None:
    waits = LogWaits()
    for number in range(MAX_WAITS + 3):
        waits.add(RequestId(str(number)), 0)
    assert len(waits) == MAX_WAITS
    assert RequestId(str(MAX_WAITS)) not in waits
