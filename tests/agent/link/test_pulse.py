from arriero.agent.link.pulse import Pulse


def test_we_speak_when_we_had_nothing_to_say_for_the_interval() -> None:
    pulse = Pulse(10.0, interval=1.0, timeout=5.0)
    assert not pulse.is_due(10.9)
    assert pulse.is_due(11.0)
    pulse.sent(10.5)
    assert not pulse.is_due(11.0)
    assert pulse.next_deadline() == 11.5


def test_they_are_lost_when_they_were_silent_for_the_timeout() -> None:
    pulse = Pulse(10.0, interval=1.0, timeout=5.0)
    assert not pulse.is_lost(14.9)
    assert pulse.is_lost(15.0)
    pulse.heard(14.0)
    assert not pulse.is_lost(15.0)
    pulse.sent(18.5)
    assert pulse.next_deadline() == 19.0
