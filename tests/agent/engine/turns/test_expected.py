from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.turns.expected import Expected

ONE, TWO = SequenceId(1), SequenceId(2)


def test_nobody_is_awaited_at_first() -> None:
    expected = Expected()
    assert not expected.are_awaited(by_urgent=True)
    assert not expected.are_awaited(by_urgent=False)


def test_everybody_waits_for_what_is_urgent() -> None:
    expected = Expected()
    expected.add(ONE, is_background=False)
    assert expected.are_awaited(by_urgent=True)
    assert expected.are_awaited(by_urgent=False)


def test_only_a_batch_waits_for_a_batch() -> None:
    expected = Expected()
    expected.add(ONE, is_background=True)
    assert not expected.are_awaited(by_urgent=True)
    assert expected.are_awaited(by_urgent=False)


def test_what_came_is_awaited_no_more() -> None:
    expected = Expected()
    expected.add(ONE, is_background=True)
    expected.add(TWO, is_background=False)
    for each in (ONE, TWO, SequenceId(3)):
        expected.discard(each)
    assert not expected.are_awaited(by_urgent=False)
