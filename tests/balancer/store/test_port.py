"""The contract that every store keeps."""

import asyncio

import pytest

from arriero.balancer.store.port import RevisionConflict, Store
from arriero.balancer.store.records import Persist, SavedState

from .conftest import Open


@pytest.fixture
async def store(opened: Open) -> Store:
    return await opened()


async def test_nothing_is_saved_at_first(store: Store) -> None:
    assert await store.load_desired_state() is None


async def test_what_was_saved_is_there_for_whoever_opens_it_next(opened: Open) -> None:
    store = await opened()
    await store.save_desired_state(Persist(0, '{"models": []}'))
    await store.save_desired_state(Persist(1, '{"models": ["ñ 🦙 \\u0000"]}'))
    assert await (await opened()).load_desired_state() == SavedState(
        2, '{"models": ["ñ 🦙 \\u0000"]}'
    )


@pytest.mark.parametrize("expected", [0, 2])
async def test_a_save_over_another_revision_is_a_conflict_and_changes_nothing(
    store: Store, expected: int
) -> None:
    await store.save_desired_state(Persist(0, "mine"))
    with pytest.raises(RevisionConflict) as conflict:
        await store.save_desired_state(Persist(expected, "another's"))
    assert conflict.value.current == SavedState(1, "mine")
    assert await store.load_desired_state() == SavedState(1, "mine")


async def test_a_save_where_nothing_is_yet_expects_revision_0(store: Store) -> None:
    with pytest.raises(RevisionConflict, match="the saved revision is 0") as conflict:
        await store.save_desired_state(Persist(1, "state"))
    assert conflict.value.current is None
    assert await store.load_desired_state() is None


async def test_the_same_save_again_is_well(store: Store) -> None:
    """As after a connection that broke before the confirmation came."""
    for _ in range(2):
        await store.save_desired_state(Persist(0, "state"))
    assert await store.load_desired_state() == SavedState(1, "state")


async def test_of_those_who_compete_for_a_revision_one_succeeds(opened: Open) -> None:
    stores = [await opened() for _ in range(4)]
    for revision in range(5):
        results = await asyncio.gather(
            *(
                each.save_desired_state(Persist(revision, f"{revision} by {number}"))
                for number, each in enumerate(stores)
            ),
            return_exceptions=True,
        )
        [winner] = [number for number, result in enumerate(results) if result is None]
        lost = [result for result in results if isinstance(result, RevisionConflict)]
        assert len(lost) == len(stores) - 1
        assert await stores[0].load_desired_state() == SavedState(
            revision + 1, f"{revision} by {winner}"
        )
