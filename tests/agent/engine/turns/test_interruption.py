"""Who stops a step, and when."""

from arriero.agent.engine.turns.interruption import Interruption


def test_a_step_is_stopped_only_while_it_may_be() -> None:
    told: list[bool] = []
    interruption = Interruption(told.append)
    interruption.want()
    interruption.seen()
    with interruption.allowed():
        assert told == []
        interruption.want()
        assert told == [True]
    assert told == [True, False]


def test_what_came_before_the_step_and_was_not_seen_stops_it_at_once() -> None:
    told: list[bool] = []
    interruption = Interruption(told.append)
    interruption.want()
    with interruption.allowed():
        assert told == [True]
    interruption.seen()
    with interruption.allowed():
        pass
    assert told == [True, False, False]
