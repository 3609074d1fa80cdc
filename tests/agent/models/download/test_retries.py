"""When a cut download goes on."""

from arriero.agent.models.download.retries import AFTER_ASKED, MAX_ASKED, PAUSES, Retries


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
