"""The statements about usage; what they find is tested in both databases (`test_sql`)."""

from sqlalchemy.dialects import postgresql, sqlite

from arriero.balancer.store.records import USAGE_DAYS, UsageQuery
from arriero.balancer.store.tables import USAGE
from arriero.balancer.store.usage_statements import COUNTS, older_usage, replacing, usage_sums


def test_a_row_is_replaced_whole() -> None:
    texts = [
        str(replacing(sqlite.insert(USAGE)).compile(dialect=sqlite.dialect())),
        str(replacing(postgresql.insert(USAGE)).compile(dialect=postgresql.dialect())),
    ]
    for text in texts:
        assert "ON CONFLICT (day, run, caller, model) DO UPDATE" in text
        assert all(f"{name} = excluded.{name}" in text for name in COUNTS)


def test_the_days_that_are_kept() -> None:
    compiled = older_usage(1000).compile()
    assert list(compiled.params.values()) == [1000 - USAGE_DAYS]


def test_sums_by_the_columns_that_are_asked_for() -> None:
    query = UsageQuery(since=1, until=2, by=("caller", "model"), limit=7)
    text = str(usage_sums(query, "run", 2))
    assert "GROUP BY usage.caller, usage.model ORDER BY usage.caller, usage.model" in text
