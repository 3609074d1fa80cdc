from arriero.agent.engine.sequence import SequenceId
from arriero.agent.link.decisions import Abandon, Close, Decision, Drop, GiveUp, Send
from arriero.shared.messages import Heartbeat


def test_decisions_are_equal_when_they_say_the_same() -> None:
    assert Send(Heartbeat()) == Send(Heartbeat())
    assert Drop(SequenceId(1)) == Drop(SequenceId(1)) != Drop(SequenceId(2))


def test_look_alikes_are_different() -> None:
    look_alikes: list[Decision] = [Drop(SequenceId(1)), Abandon(SequenceId(1))]
    assert len(set(look_alikes)) == 2
    ends: list[Decision] = [Close("x"), GiveUp("x")]
    assert len(set(ends)) == 2
