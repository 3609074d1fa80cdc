"""The contract that every store keeps."""

import asyncio
from dataclasses import replace

import pytest

from arriero.balancer.store.port import KeyConflict, KeyStore, RevisionConflict, Store
from arriero.balancer.store.records import Persist, SavedCordon, SavedKey, SavedState

from .conftest import Open, OpenCordons, OpenKeys


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


# ---- access keys

KEY = SavedKey(
    name="ci",
    revision=1,
    digest="d1",
    role="inference",
    limits='{"max_tokens":1}',
    labels="null",
    created_at=1.5,
)
SECOND = replace(KEY, revision=2, digest="d2", expires_at=9.25, rotated_at=2.0)


@pytest.fixture
async def keys(opened_keys: OpenKeys) -> KeyStore:
    return await opened_keys()


async def test_keys_are_there_for_whoever_opens_it_next(opened_keys: OpenKeys) -> None:
    store = await opened_keys()
    assert await store.load_keys() == []
    other = replace(KEY, name="a", digest="d9")
    for key in (KEY, other, SECOND):
        await store.save_key(key)
    assert await (await opened_keys()).load_keys() == [other, SECOND]


async def test_a_key_over_another_revision_is_a_conflict(keys: KeyStore) -> None:
    await keys.save_key(KEY)
    for late in (replace(KEY, digest="x"), replace(KEY, revision=3), replace(KEY, revision=4)):
        with pytest.raises(KeyConflict) as conflict:
            await keys.save_key(late)
        assert conflict.value.current == KEY
    with pytest.raises(KeyConflict) as conflict:
        await keys.save_key(replace(KEY, name="b", revision=2))
    assert conflict.value.current is None
    assert await keys.load_keys() == [KEY]


async def test_the_same_key_again_is_well(keys: KeyStore) -> None:
    for key in (KEY, KEY, SECOND, SECOND):
        await keys.save_key(key)
    assert await keys.load_keys() == [SECOND]


async def test_a_key_is_forgotten_at_its_revision_only(keys: KeyStore) -> None:
    await keys.save_key(KEY)
    await keys.save_key(SECOND)
    with pytest.raises(KeyConflict):
        await keys.forget_key("ci", 1)
    await keys.forget_key("ci", 2)
    await keys.forget_key("ci", 2)
    assert await keys.load_keys() == []


async def test_of_those_who_make_one_key_one_succeeds(opened_keys: OpenKeys) -> None:
    stores = [await opened_keys() for _ in range(4)]
    for revision in (1, 2, 3):
        results = await asyncio.gather(
            *(
                each.save_key(replace(KEY, revision=revision, digest=f"{revision} {number}"))
                for number, each in enumerate(stores)
            ),
            return_exceptions=True,
        )
        [winner] = [number for number, result in enumerate(results) if result is None]
        assert sum(isinstance(result, KeyConflict) for result in results) == len(stores) - 1
        [saved] = await stores[0].load_keys()
        assert saved.digest == f"{revision} {winner}"


# ---- cordons


async def test_cordons_are_there_for_whoever_opens_it_next(opened_cordons: OpenCordons) -> None:
    store = await opened_cordons()
    assert await store.load_cordons() == []
    first, second = SavedCordon("a", "host", 1.5), SavedCordon("b", "host", 2.5)
    for cordon in (second, first, replace(second, since=3.5)):
        await store.save_cordon(cordon)
    again = await opened_cordons()
    assert await again.load_cordons() == [first, replace(second, since=3.5)]
    for _ in range(2):
        await store.forget_cordon("a")
    assert await again.load_cordons() == [replace(second, since=3.5)]
