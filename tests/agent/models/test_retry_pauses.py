"""How long to wait after a failed fetch."""

from arriero.agent.models.retry_pauses import LATER, SOON, pause_after


def test_pauses_grow_up_to_a_bound() -> None:
    assert [pause_after("unreachable", n) for n in (1, 2, 3)] == [5.0, 10.0, 20.0]
    assert pause_after("unreachable", 10**6) == SOON[1]


def test_what_may_cost_a_whole_download_is_tried_later() -> None:
    assert pause_after("wrong_checksum", 1) == LATER[0]
    assert pause_after("wrong_checksum", 100) == LATER[1]
