import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.cluster.leadership import (
    Cancel,
    Follow,
    Heed,
    Lead,
    Read,
    Retry,
    Standing,
)
from arriero.balancer.cluster.notifications import SUBJECTS, CancelRequest, Changed, RetryAgent
from arriero.balancer.cluster.peer_store import Beat, Peer


def peer(run: str) -> Peer:
    return Peer(Beat(run=run, name="b", version="1"), 0.0)


def test_with_each_session_everything_is_read_anew() -> None:
    standing = Standing("me")
    for _ in range(2):
        assert standing.connected() == [Read(what) for what in SUBJECTS]
        standing.lost()


def test_leadership_goes_with_the_session() -> None:
    standing = Standing("me")
    standing.connected()
    assert standing.granted(None) == []
    assert standing.granted(3) == [Lead(3)]
    assert standing.lost() == [Follow()]
    assert standing.epoch is None
    assert standing.lost() == []
    assert standing.granted(4) == [], "the session was gone when the grant came"


def test_an_epoch_that_does_not_grow_is_a_fault_of_the_store() -> None:
    standing = Standing("me")
    standing.connected()
    standing.granted(3)
    with pytest.raises(RuntimeError, match="granted after 3"):
        standing.granted(3)


def test_who_is_outbid_asks_again() -> None:
    standing = Standing("me")
    assert standing.must_ask(None)
    standing.connected()
    standing.granted(3)
    assert [standing.must_ask(outbid) for outbid in (None, 3, 4)] == [False, False, True]


def test_it_counts_itself_once() -> None:
    standing = Standing("me")
    assert standing.num_live == 1
    other = peer("other")
    assert standing.beaten([peer("me"), other]) == [Heed((other,))]
    assert standing.num_live == 2
    standing.lost()
    assert standing.num_live == 2, "the others live on while the store is away"


def test_news() -> None:
    standing = Standing("me")
    assert standing.heard(Changed("keys")) == [Read("keys")]
    assert standing.heard(CancelRequest("r")) == [Cancel("r")]
    assert standing.heard(RetryAgent("a")) == []
    standing.connected()
    standing.granted(1)
    assert standing.heard(RetryAgent("a")) == [Retry("a")]


@given(st.lists(st.sampled_from(["connect", "lose", "grant", "refuse"]), max_size=40))
def test_it_leads_only_in_a_session_and_tells_each_change_once(events: list[str]) -> None:
    standing, leads, is_connected, epoch = Standing("me"), False, False, 0
    for event in events:
        if event == "connect" and not is_connected:
            is_connected = True
            standing.connected()
        elif event == "lose":
            is_connected = False
            assert standing.lost() == ([Follow()] if leads else [])
            leads = False
        elif event == "grant":
            epoch += 1
            assert standing.granted(epoch) == ([Lead(epoch)] if is_connected else [])
            leads = leads or is_connected
        elif event == "refuse":
            assert standing.granted(None) == []
        assert (standing.epoch is not None) == leads
