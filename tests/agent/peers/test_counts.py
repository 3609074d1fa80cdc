"""What came of transfers."""

from arriero.agent.peers.counts import Counts
from arriero.shared.reports.statistics import Fetches


def test_all_is_counted() -> None:
    counts = Counts()
    assert counts.total == Fetches()
    for _ in range(2):
        counts.fetched(tokens=10, num_bytes=1000, seconds=0.5)
    counts.failed()
    counts.lent()
    assert counts.total == Fetches(num=2, failed=1, tokens=20, bytes=2000, seconds=1.0, lent=1)
