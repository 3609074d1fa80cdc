"""Other balancers are asked, and what does not fit counts as no answer."""

from arriero.balancer.cluster import answers
from arriero.balancer.cluster.answers import EndedAnswer, HistoryAnswer, What
from arriero.balancer.cluster.cluster_view import ClusterView
from arriero.balancer.cluster.others import NO_OTHERS
from arriero.balancer.cluster.questions import Replies, Reply
from arriero.balancer.history.endings import ended_request
from arriero.balancer.management.request_filter import RequestFilter
from arriero.balancer.store.records import EndingFilter, EndingPlace
from arriero.shared.inference import RequestId
from tests.balancer.history.builders import ending, step


def answering(*replies: tuple[str, bytes], missing: tuple[str, ...] = ()) -> ClusterView:
    """Others that answer everything so, and take what they are told."""

    async def ask(_what: What, _about: str) -> Replies:
        return Replies(tuple(Reply(name, body) for name, body in replies), missing)

    async def notify(_id: RequestId) -> bool:
        return True

    return ClusterView(ask, lambda: "here", notify)


async def test_alone_nobody_is_asked() -> None:
    alone = ClusterView()
    assert await alone.fleet() is NO_OTHERS
    assert (await alone.requests(RequestFilter(), list, lambda: 3)).total == 3
    assert (await alone.request(RequestId("r"))).requests == []
    assert (await alone.ended(EndingFilter())).requests == ()
    assert (await alone.history(0)).steps == {}
    assert not await alone.cancel(RequestId("r"))


async def test_metrics_are_of_the_processes_behind_the_port() -> None:
    async def ask(_what: What, _about: str) -> Replies:
        return Replies((Reply("b/1", b"a 1"), Reply("another/0", b"a 7")))

    cluster = ClusterView(ask, lambda: "b/0", workers={"b/0": 0, "b/1": 1, "b/2": 2})
    lines = (await cluster.metrics("", b"# HELP a A.\na 0\n")).decode().splitlines()
    assert lines[:2] == ["# HELP a A.", 'a{worker="0"} 0']
    assert lines[-3:] == [f'arriero_worker_up{{worker="{n}"}} {float(n < 2)}' for n in range(3)]
    assert await ClusterView(ask).metrics("", b"a 0") == b"a 0", "one process needs no label"


async def test_what_does_not_fit_is_missing() -> None:
    cluster = answering(("one", b"{}"), ("three", b"junk"), missing=("two",))
    assert (await cluster.fleet()).missing == ("one", "three", "two")
    found = await cluster.requests(RequestFilter(), list, lambda: 0)
    assert found.missing == ("one", "three", "two")


async def test_the_past_that_others_tell() -> None:
    """Over the wire, as the other side writes it."""
    last, counted = ended_request(ending("a"), 1.5), step(100, 7, ana=7)
    body = answers.written(EndedAnswer, {"requests": [last], "total": 3})
    cluster = answering(("one", body.encode()), ("old", b"{}"), missing=("two",))
    found = await cluster.ended(EndingFilter(before=EndingPlace(2.0, "x")))
    assert (found.requests, found.total, found.missing) == ((last,), 3, ("old", "two"))
    body = answers.written(HistoryAnswer, {"source": "run", "steps": [counted]})
    steps = await answering(("one", body.encode()), missing=("two",)).history(7)
    assert (steps.steps, steps.missing) == ({"run": [counted]}, ("two",))


async def test_a_cancel_reaches_those_that_do_not_answer() -> None:
    no, yes = b'{"is_cancelled":false}', b'{"is_cancelled":true}'
    r = RequestId("r")
    assert not await answering(("one", no), ("two", no)).cancel(r)
    assert await answering(("one", no), ("two", yes)).cancel(r)
    assert await answering(("one", no), missing=("old",)).cancel(r)
