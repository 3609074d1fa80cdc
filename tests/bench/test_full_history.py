from pathlib import Path

from arriero.balancer.history.history_task import HistoryTask
from arriero.balancer.store.records import MAX_ENDINGS, STEPS_KEPT
from arriero.balancer.store.store import open_store
from arriero.balancer.store.url import parse_store_url
from bench.full_history import fill


async def test_a_balancer_that_starts_on_it_has_all_that_it_would_gather_in_an_hour(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    await fill(url, "a", "m")
    store = await open_store(parse_store_url(url))
    history = HistoryTask()
    await history.restore(store.history)
    await store.close()
    assert len(history.endings) == MAX_ENDINGS
    assert len(history.series.seconds) > STEPS_KEPT[1] - 60
    step = history.series.seconds[-1]
    assert step.agents.keys() == {"a"} and step.models.keys() == {"m"}
    assert step.fleet.between_tokens
