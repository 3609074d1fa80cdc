from arriero.shared.framing.heartbeat import SECOND_LOOK, HeartbeatMonitor


def test_we_speak_when_we_had_nothing_to_say_for_the_interval() -> None:
    heartbeat = HeartbeatMonitor(10.0, interval=1.0, timeout=5.0)
    assert not heartbeat.is_due(10.9)
    assert heartbeat.is_due(11.0)
    heartbeat.sent(10.5)
    assert not heartbeat.is_due(11.0)
    assert heartbeat.next_deadline() == 11.5


def test_they_are_lost_when_they_were_silent_for_the_timeout_and_a_moment() -> None:
    heartbeat = HeartbeatMonitor(10.0, interval=100.0, timeout=5.0)
    heartbeat.check(14.9)
    assert heartbeat.next_deadline() == 15.0
    heartbeat.check(15.0)
    assert not heartbeat.is_lost(15.0)
    assert heartbeat.next_deadline() == 15.0 + SECOND_LOOK
    heartbeat.check(15.05)
    assert heartbeat.is_lost(15.0 + SECOND_LOOK)


def test_what_they_said_while_we_were_held_up_counts() -> None:
    heartbeat = HeartbeatMonitor(10.0, interval=100.0, timeout=5.0)
    heartbeat.check(60.0)
    assert not heartbeat.is_lost(60.0)
    heartbeat.heard(60.0)
    assert not heartbeat.is_lost(60.0 + SECOND_LOOK)
    assert heartbeat.next_deadline() == 65.0
