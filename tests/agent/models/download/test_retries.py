"""When a cut download goes on."""

from arriero.agent.models.download.retries import MAX_ASKED, PAUSES, Retries


def test_pauses_grow_and_end_where_nothing_arrives() -> None:
    retries = Retries()
    pauses = [retries.next_pause(made_progress=False) for _ in range(len(PAUSES) + 1)]
    assert pauses == [*PAUSES, None]


def test_new_bytes_count_as_a_new_start() -> None:
    retries = Retries()
    for _ in PAUSES:
        retries.next_pause(made_progress=False)
    assert retries.next_pause(made_progress=True) == PAUSES[0]


def test_a_server_may_ask_for_more_within_bounds() -> None:
    assert Retries().next_pause(made_progress=False, asked=20) == 20
    assert Retries().next_pause(made_progress=False, asked=10**9) == MAX_ASKED
