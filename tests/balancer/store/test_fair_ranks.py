"""Which rows of a shared table are beyond its bounds."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert, select

from arriero.balancer.store.fair_ranks import fairly_ranked
from arriero.balancer.store.tables import CONVERSATIONS

C = CONVERSATIONS.c
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12)


def kept(rows: list[tuple[str, int]], num_bytes: int, num: int) -> list[int]:
    """The rows within these bounds; a later one was used later."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        CONVERSATIONS.create(connection)
        saved = [
            {"id": str(n), "owner": o, "kind": "", "document": b"", "num_bytes": s, "used_at": n}
            for n, (o, s) in enumerate(rows)
        ]
        if saved:
            connection.execute(insert(CONVERSATIONS), saved)
        latest = (C.used_at.desc(),)
        ranked = fairly_ranked(C.id, C.owner, latest=latest, num_bytes=C.num_bytes)
        within = (ranked.c.place <= num) & (ranked.c.total <= num_bytes)
        ids = connection.execute(select(ranked.c.id).where(within)).scalars().all()
    engine.dispose()
    return sorted(map(int, ids))


@given(ROWS, st.integers(0, 40), st.integers(1, 8))
def test_the_bounds_hold_and_each_owner_keeps_its_newest(
    rows: list[tuple[str, int]], num_bytes: int, num: int
) -> None:
    left = kept(rows, num_bytes, num)
    assert len(left) <= num and sum(rows[each][1] for each in left) <= num_bytes
    for owner in "abc":
        own = [n for n, row in enumerate(rows) if row[0] == owner]
        mine = [each for each in left if each in own]
        assert mine == own[len(own) - len(mine) :]


@given(ROWS, st.integers(0, 40))
def test_who_has_no_more_than_an_equal_part_loses_nothing(
    rows: list[tuple[str, int]], num_bytes: int
) -> None:
    left = kept(rows, num_bytes, 100)
    for owner in "abc":
        own = [n for n, row in enumerate(rows) if row[0] == owner]
        if sum(rows[each][1] for each in own) <= num_bytes // 3:
            assert set(own) <= set(left)


def test_one_owner_alone_has_it_all() -> None:
    sizes = [5, 1, 4, 2]
    rows = [("a", size) for size in sizes]
    assert list(accumulate(reversed(sizes))) == [2, 6, 7, 12]
    assert kept(rows, 12, 4) == [0, 1, 2, 3]
    assert kept(rows, 11, 4) == [1, 2, 3]
    assert kept(rows, 12, 2) == [2, 3]
