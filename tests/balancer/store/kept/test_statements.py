"""The statements about kept requests; what they do is tested in both databases (`test_sql`)."""

import pytest
from sqlalchemy.dialects import postgresql, sqlite

from arriero.balancer.store.kept import statements
from arriero.balancer.store.kept.records import KeptBounds


def test_who_takes_requests_does_not_wait_for_who_takes_others() -> None:
    claimable = statements.claimable("run", statements.clock("postgresql"), 5)
    text = str(claimable.compile(dialect=postgresql.dialect()))
    assert "FOR UPDATE SKIP LOCKED" in text and "clock_timestamp()" in text


def test_who_writes_keeps_others_from_taking_it_meanwhile() -> None:
    text = str(statements.owned("run", ["r"]).compile(dialect=postgresql.dialect()))
    assert text.endswith("FOR UPDATE")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_events_from_the_same_number_on_are_replaced(kind: str) -> None:
    dialect = sqlite.dialect() if kind == "sqlite" else postgresql.dialect()
    text = str(statements.replacing(kind).compile(dialect=dialect))
    assert "ON CONFLICT (id, start) DO UPDATE SET document = excluded.document" in text


def test_what_runs_is_never_beyond_the_bounds() -> None:
    bounds = KeptBounds(num=1, num_bytes=2, age=3.0)
    text = str(statements.excess(bounds, statements.clock("sqlite")))
    assert "WHERE anon_1.is_idle AND (" in text
