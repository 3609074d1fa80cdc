"""How long to wait after a failed attempt."""

from arriero.agent.models.retry_pauses import LATER, SOON, pause_after


def test_pauses_grow_up_to_a_bound() -> None:
    assert [pause_after("unreachable", last) for last in (0, 5, 10, 59, 1e9)] == [5, 10, 20, 60, 60]


def test_what_may_cost_a_whole_download_is_tried_later() -> None:
    assert pause_after("wrong_checksum", SOON[1]) == 2 * SOON[1]
    assert [pause_after("wrong_checksum", last) for last in (0, LATER[1])] == [60, 3600]
