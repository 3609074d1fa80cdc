import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.cluster.leadership import (
    Cancel,
    Follow,
    Lead,
    Leadership,
    Read,
    Retry,
    ShareWith,
)
from arriero.balancer.cluster.notifications import SUBJECTS, CancelRequest, Changed, RetryAgent
from arriero.balancer.cluster.peer_store import Beat, Peer


def peer(run: str) -> Peer:
    return Peer(Beat(run=run, name="b", version="1"), 0.0)


def test_with_each_session_everything_is_read_anew() -> None:
    leadership = Leadership("me")
    for _ in range(2):
        assert leadership.connected() == [Read(what) for what in SUBJECTS]
        leadership.lost()


def test_leadership_goes_with_the_session() -> None:
    leadership = Leadership("me")
    leadership.connected()
    assert leadership.granted(None) == []
    assert leadership.granted(3) == [Lead(3)]
    assert leadership.lost() == [Follow()]
    assert leadership.epoch is None
    assert leadership.lost() == []
    assert leadership.granted(4) == [], "the session was gone when the grant came"


def test_an_epoch_that_does_not_grow_is_a_fault_of_the_store() -> None:
    leadership = Leadership("me")
    leadership.connected()
    leadership.granted(3)
    with pytest.raises(RuntimeError, match="granted after 3"):
        leadership.granted(3)


def test_who_is_outbid_asks_again() -> None:
    leadership = Leadership("me")
    assert leadership.must_ask(None)
    leadership.connected()
    leadership.granted(3)
    assert [leadership.must_ask(outbid) for outbid in (None, 3, 4)] == [False, False, True]


def test_it_counts_itself_once() -> None:
    leadership = Leadership("me")
    assert leadership.num_live == 1
    other = peer("other")
    assert leadership.beaten([peer("me"), other]) == [ShareWith((other,))]
    assert leadership.num_live == 2
    leadership.lost()
    assert leadership.num_live == 2, "the others live on while the store is away"


def test_news() -> None:
    leadership = Leadership("me")
    assert leadership.heard(Changed("keys")) == [Read("keys")]
    assert leadership.heard(CancelRequest("r")) == [Cancel("r")]
    assert leadership.heard(RetryAgent("a")) == []
    leadership.connected()
    leadership.granted(1)
    assert leadership.heard(RetryAgent("a")) == [Retry("a")]


@given(st.lists(st.sampled_from(["connect", "lose", "grant", "refuse"]), max_size=40))
def test_it_leads_only_in_a_session_and_tells_each_change_once(events: list[str]) -> None:
    leadership, leads, is_connected, epoch = Leadership("me"), False, False, 0
    for event in events:
        if event == "connect" and not is_connected:
            is_connected = True
            leadership.connected()
        elif event == "lose":
            is_connected = False
            assert leadership.lost() == ([Follow()] if leads else [])
            leads = False
        elif event == "grant":
            epoch += 1
            assert leadership.granted(epoch) == ([Lead(epoch)] if is_connected else [])
            leads = leads or is_connected
        elif event == "refuse":
            assert leadership.granted(None) == []
        assert (leadership.epoch is not None) == leads
