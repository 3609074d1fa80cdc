"""How many connections an address needs, as its answers tell."""

import pytest

from arriero.agent.discovery.worker_links import (
    DIALS_PER_WORKER,
    MOST_WORKERS,
    Wanted,
    Workers,
    wanted,
)

TWO = Workers(2, frozenset("ab"))


@pytest.mark.parametrize("header", [None, "", "a,b", "-1;a", "²;a", "9999;a"])
def test_who_says_nothing_of_workers_is_one(header: str | None) -> None:
    assert Workers.told(header) == Workers()


def test_what_is_told() -> None:
    assert Workers.told("2;a,b") == TWO
    assert Workers.told("3;") == Workers(3)
    many = Workers.told("999;" + ",".join(map(str, range(999))))
    assert (many.num, len(many.living)) == (MOST_WORKERS, MOST_WORKERS)


def test_there_is_a_connection_for_each() -> None:
    assert wanted(Workers(), {0: "a"}) == Wanted()
    assert wanted(TWO, {0: "a"}) == Wanted(opened=(1,), num_dials=2 * DIALS_PER_WORKER)
    assert wanted(TWO, {0: "a", 1: None}).num_dials == 2 * DIALS_PER_WORKER
    assert wanted(TWO, {0: "a", 1: "b"}) == Wanted()


def test_one_that_starts_again_is_waited_for_patiently() -> None:
    assert wanted(Workers(2, frozenset("a")), {0: "a", 1: None}) == Wanted()


def test_who_is_gone_for_good_is_dialled_no_more() -> None:
    met = {0: "a", 1: None, 2: "b", 3: None}
    assert wanted(TWO, met) == Wanted(left=(3,))
    assert wanted(Workers(), {0: "a", 1: None}) == Wanted(left=(1,))
