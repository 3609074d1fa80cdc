"""How long to wait after a failed attempt."""

from arriero.agent.models.retry_pauses import (
    AFTER_ASKED,
    LATER,
    MAX_ASKED,
    PAUSES,
    SOON,
    SPREAD,
    Retries,
    pause_after,
    spread,
)


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


def test_pauses_grow_and_end_where_nothing_arrives() -> None:
    retries = Retries()
    pauses = [retries.next_pause(made_progress=False, jitter=0.0) for _ in range(len(PAUSES) + 1)]
    assert pauses == [*PAUSES, None]


def test_new_bytes_count_as_a_new_start() -> None:
    retries = Retries()
    for _ in PAUSES:
        retries.next_pause(made_progress=False, jitter=0.0)
    assert retries.next_pause(made_progress=True, jitter=0.0) == PAUSES[0]


def test_a_server_may_ask_for_more_within_bounds() -> None:
    assert Retries().next_pause(made_progress=False, jitter=0.0, asked=20) == 20
    assert Retries().next_pause(made_progress=False, jitter=0.0, asked=10**9) == MAX_ASKED


def test_downloads_that_were_cut_together_do_not_go_on_together() -> None:
    first, second = (Retries().next_pause(made_progress=False, jitter=j) for j in (0.0, 0.9))
    assert first is not None and second is not None
    assert 0 < second < first == PAUSES[0]


def test_nobody_comes_before_the_server_wants() -> None:
    pauses = [Retries().next_pause(made_progress=False, jitter=j, asked=20) for j in (0.0, 0.9)]
    assert pauses == [20, 20 + 0.9 * AFTER_ASKED]
