"""What the contract in `test_port` does not say."""

from arriero.balancer.store.memory import MemoryStore
from arriero.balancer.store.records import Persist


async def test_each_balancer_has_its_own() -> None:
    store = MemoryStore()
    await store.save_desired_state(Persist(0, "state"))
    await store.close()
    assert await MemoryStore().load_desired_state() is None
