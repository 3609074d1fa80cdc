from arriero.shared.pulse import SECOND_LOOK, Pulse


def test_we_speak_when_we_had_nothing_to_say_for_the_interval() -> None:
    pulse = Pulse(10.0, interval=1.0, timeout=5.0)
    assert not pulse.is_due(10.9)
    assert pulse.is_due(11.0)
    pulse.sent(10.5)
    assert not pulse.is_due(11.0)
    assert pulse.next_deadline() == 11.5


def test_they_are_lost_when_they_were_silent_for_the_timeout_and_a_moment() -> None:
    pulse = Pulse(10.0, interval=100.0, timeout=5.0)
    pulse.look(14.9)
    assert pulse.next_deadline() == 15.0
    pulse.look(15.0)
    assert not pulse.is_lost(15.0)
    assert pulse.next_deadline() == 15.0 + SECOND_LOOK
    pulse.look(15.05)
    assert pulse.is_lost(15.0 + SECOND_LOOK)


def test_what_they_said_while_we_were_held_up_counts() -> None:
    pulse = Pulse(10.0, interval=100.0, timeout=5.0)
    pulse.look(60.0)
    assert not pulse.is_lost(60.0)
    pulse.heard(60.0)
    assert not pulse.is_lost(60.0 + SECOND_LOOK)
    assert pulse.next_deadline() == 65.0
