"""Which agent fetches a prefix from which, and when computing it is cheaper."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.fetches import (
    FIRST_RATE,
    LATENCY,
    LEAST_SECONDS,
    LEAST_TOKENS,
    SLACK,
    Fetches,
    Fetching,
    Tickets,
)
from arriero.shared.inference import RequestId
from arriero.shared.inference.prefix_peers import LONGEST_LOAN, Peer, PrefixSource
from arriero.shared.messages import Lend
from arriero.shared.reports.statistics import Fetches as Done

A, B, C = LinkId(1), LinkId(2), LinkId(3)
PEER = Peer(address="10.0.0.1:1", tls=False, cells="same", cell_bytes=1000)


def fetches(**others: object) -> Fetches:
    made = Fetches()
    made.agent_is(A, PEER)
    made.agent_is(B, replace(PEER, address="10.0.0.2:1", **others))  # type: ignore[arg-type]
    return made


def test_what_another_agent_holds_is_fetched_where_that_is_cheaper() -> None:
    made = fetches()
    found = made.best(B, {A: 1000.0}, own=0.0, prefill=500.0)
    assert found == Fetching(A, 1000.0, pytest.approx(2.0), PEER.address)  # type: ignore[comparison-overlap]
    assert made.best(B, {A: 1000.0}, own=0.0, prefill=1e6) is None
    assert made.best(B, {A: LEAST_TOKENS - 1.0}, own=0.0, prefill=1.0) is None
    assert made.best(B, {A: 1000.0, B: 990.0}, own=990.0, prefill=1.0) is None
    assert made.best(A, {A: 1000.0}, own=1000.0, prefill=1.0) is None


def test_the_one_with_the_most_lends() -> None:
    made = fetches()
    made.agent_is(C, PEER)
    found = made.best(B, {A: 500.0, C: 900.0}, own=0.0, prefill=100.0)
    assert found is not None and found.source == C


@pytest.mark.parametrize("other", [{"cells": "others"}, {"tls": True}])
def test_those_that_do_not_fit_lend_nothing(other: dict[str, object]) -> None:
    assert fetches(**other).best(B, {A: 1000.0}, own=0.0, prefill=1.0) is None


def test_agents_that_are_no_peers_neither_lend_nor_fetch() -> None:
    made = fetches()
    assert made.best(C, {A: 1000.0}, own=0.0, prefill=1.0) is None
    assert made.best(A, {C: 1000.0}, own=0.0, prefill=1.0) is None
    made.agent_is(A, None)
    assert made.best(B, {A: 1000.0}, own=0.0, prefill=1.0) is None
    assert not made.is_peer(A)
    made.agent_left(B)
    made.measured(B, Done(num=1, bytes=1, seconds=1.0))
    assert not made.is_peer(B)


def test_the_rate_is_that_of_the_fetches_so_far() -> None:
    made = fetches()
    assert made.seconds(B, 1000) == LATENCY + 1e6 / FIRST_RATE
    for number in range(1, 30):
        made.measured(B, Done(num=number, bytes=number * 10**6, seconds=number * 1.0))
    assert made.seconds(B, 1000) == pytest.approx(LATENCY + 1.0, rel=0.2)
    before = made.seconds(B, 1000)
    made.measured(B, Done(num=29, failed=5, bytes=29 * 10**6, seconds=29.0))
    assert made.seconds(B, 1000) == before
    assert made.seconds(A, 1000) == LATENCY + 1e6 / FIRST_RATE


def test_a_rate_that_is_too_slow_is_tried_again_some_day() -> None:
    made = fetches()
    made.measured(B, Done(num=1, bytes=1000, seconds=100.0))
    tries = 0
    while made.best(B, {A: 1000.0}, own=0.0, prefill=500.0) is None:
        tries += 1
    assert 50 < tries < 1000


@pytest.mark.parametrize(
    ("computing", "patience"),
    [(2.0, 2.0 * SLACK), (0.01, LEAST_SECONDS), (1e6, LONGEST_LOAN)],
)
def test_both_sides_are_told_of_the_ticket_and_of_its_time(
    computing: float, patience: float
) -> None:
    told = Fetching(A, 1000.0, computing, PEER.address).agree("t")
    assert told == (
        Lend(ticket="t", seconds=patience),
        PrefixSource(address="10.0.0.1:1", ticket="t", seconds=patience),
    )


def test_tickets_differ_and_without_a_secret_there_are_none() -> None:
    assert not Tickets().are_there
    ours, theirs = Tickets(b"secret"), Tickets(b"another")
    assert ours.are_there
    drawn = [ours.draw(RequestId("r")), ours.draw(RequestId("r")), ours.draw(RequestId("s"))]
    drawn.append(theirs.draw(RequestId("r")))
    assert len({*drawn}) == 4
    assert all(len(ticket) == 32 for ticket in drawn)
