"""How long to wait after a failed attempt."""

from arriero.agent.models.retry_pauses import LATER, SOON, SPREAD, pause_after, spread


def test_pauses_grow_up_to_a_bound() -> None:
    assert [pause_after("unreachable", last) for last in (0, 5, 10, 59, 1e9)] == [5, 10, 20, 60, 60]


def test_what_may_cost_a_whole_download_is_tried_later() -> None:
    assert pause_after("wrong_checksum", SOON[1]) == 2 * SOON[1]
    assert [pause_after("wrong_checksum", last) for last in (0, LATER[1])] == [60, 3600]


def test_agents_do_not_try_again_together() -> None:
    assert spread(60.0, 0.0) == 60.0
    pauses = [spread(60.0, jitter) for jitter in (0.0, 0.25, 0.5, 0.999)]
    assert pauses == sorted(pauses, reverse=True) and len(set(pauses)) == 4
    assert min(pauses) >= 60.0 * (1 - SPREAD)
