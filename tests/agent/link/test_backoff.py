from arriero.agent.link.backoff import Backoff


def test_pauses_double_up_to_a_ceiling() -> None:
    backoff = Backoff()
    pauses = [backoff.next_pause(1.0) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_any_time_below_the_ceiling_may_be_drawn() -> None:
    backoff = Backoff()
    assert [backoff.next_pause(jitter) for jitter in (0.0, 0.5, 0.25)] == [0.0, 0.1, 0.1]


def test_a_success_starts_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.next_pause(1.0)
    backoff.reset()
    assert backoff.next_pause(1.0) == 0.1


def test_after_a_refused_key_it_waits_for_long() -> None:
    backoff = Backoff()
    assert [backoff.refused(jitter) for jitter in (0.0, 1.0)] == [30.0, 60.0]
    assert backoff.next_pause(1.0) == 5.0
