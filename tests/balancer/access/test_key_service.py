"""Keys are made, revoked and rotated: in the store first, then in the ring."""

import asyncio
from typing import Any

import pytest

from arriero.balancer.access import key_service
from arriero.balancer.access.access import Access
from arriero.balancer.access.access_key import AccessKey, is_key
from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.access.key_service import KeyService, load_keys, restored, saved
from arriero.balancer.access.key_spec import KeySpec
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import SavedKey
from arriero.shared.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable, Unauthorized
from tests.balancer.access.builders import record
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

pytestmark = pytest.mark.usefixtures("closes_stores")

ROOT = KeySpec(name="root", role="admin")
CI = KeySpec(name="ci", role="inference")


class SlowStore(MemoryStore):
    """Saves when the test says so, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save = asyncio.Event()
        self.may_save.set()
        self.is_away = False

    async def save_key(self, key: SavedKey) -> None:
        await self.may_save.wait()
        if self.is_away:
            raise StoreAway("no answer")
        await super().save_key(key)


def balancer(store: SlowStore) -> tuple[Access, KeyService]:
    access = Access()
    return access, KeyService(access, store)


async def test_a_key_is_told_once_and_kept_as_its_digest() -> None:
    store = SlowStore()
    access, service = balancer(store)
    key, secret = await service.create(ROOT)
    assert is_key(secret)
    assert (await access.admitted([secret])) == key.identity
    assert await load_keys(store) == service.records() == [key]
    assert secret not in repr(await store.load_keys()) + repr(service.records())


async def test_two_keys_are_never_the_same() -> None:
    _, service = balancer(SlowStore())
    await service.create(ROOT)
    secrets = [(await service.create(KeySpec(name=f"k{n}", role="viewer")))[1] for n in range(20)]
    assert len(set(secrets)) == 20


async def test_who_is_revoked_while_a_change_waits_for_its_turn_does_not_make_it() -> None:
    store = SlowStore()
    access, service = balancer(store)
    await service.create(ROOT)
    leaver, _ = await service.create(KeySpec(name="leaver", role="admin"))
    ended: list[Unauthorized] = []

    def check() -> None:
        for error in ended:
            raise error

    with access.watch(leaver.identity, ended.append):
        store.may_save.clear()
        revoking = asyncio.create_task(service.revoke("leaver"))
        await asyncio.sleep(0)
        making = asyncio.create_task(service.create(CI, check))
        await asyncio.sleep(0)
        store.may_save.set()
        await revoking
        with pytest.raises(Unauthorized, match="'leaver' was revoked"):
            await making
    assert [each.name for each in service.records()] == ["leaver", "root"]


async def test_revoking_and_rotating() -> None:
    store = SlowStore()
    access, service = balancer(store)
    await service.create(ROOT)
    _, first = await service.create(CI)
    _, second = await service.rotate("ci")
    with pytest.raises(Unauthorized):
        await access.admitted([first])
    assert (await access.admitted([second])) is not None
    await service.revoke("ci")
    with pytest.raises(Unauthorized, match="revoked"):
        await access.admitted([second])
    assert (await load_keys(store))[0].revoked_at is not None
    with pytest.raises(NotFound):
        await service.revoke("nobody")


async def test_the_last_admins_key_is_not_revoked_by_accident() -> None:
    access, service = balancer(SlowStore())
    _, root = await service.create(ROOT)
    await service.create(CI)
    with pytest.raises(Conflict, match="'root' is the last key of the role admin"):
        await service.revoke("root")
    assert (await access.admitted([root])) is not None
    await service.create(KeySpec(name="other", role="admin"))
    await service.revoke("root")
    with pytest.raises(Conflict, match="'other' is the last"):
        await service.revoke("other")
    await service.revoke("root")  # once more changes nothing


async def test_without_the_store_nothing_changes_and_known_keys_go_on() -> None:
    store = SlowStore()
    access, service = balancer(store)
    _, root = await service.create(ROOT)
    store.is_away = True
    revoking = service.revoke("root", may_be_last=True)
    for change in (service.create(CI), service.rotate("root"), revoking):
        with pytest.raises(StoreUnavailable, match="the store is away: no answer"):
            await change
    assert [key.name for key in service.records()] == ["root"]
    assert (await access.admitted([root])) is not None


async def test_a_client_that_leaves_does_not_cut_a_change() -> None:
    store = SlowStore()
    access, service = balancer(store)
    store.may_save.clear()
    waiting = asyncio.create_task(service.create(ROOT))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.may_save.set()
    await service.create(CI)  # waits for its turn
    assert [key.name for key in service.records()] == ["ci", "root"]
    assert not access.is_open


async def test_of_two_balancers_with_one_store_one_makes_the_key() -> None:
    store = SlowStore()
    (_, one), (access, other) = balancer(store), balancer(store)
    await one.create(ROOT)
    await one.create(CI)
    with pytest.raises(Conflict, match="'ci' exists already"):
        await other.create(KeySpec(name="ci", role="admin"))
    assert not access.is_open, "it has learnt of the others' keys"
    await one.rotate("ci")
    assert (await other.revoke("ci")).revision == 3


async def test_a_change_that_is_always_overtaken_is_a_conflict() -> None:
    class Overtaken(SlowStore):
        async def load_keys(self) -> list[SavedKey]:
            return []

    store: Any = Overtaken()
    _, service = balancer(store)
    await store.save_key(
        SavedKey(
            name="root",
            revision=1,
            digest="d",
            role="admin",
            limits="{}",
            labels="null",
            created_at=1.0,
        ),
    )
    with pytest.raises(Conflict, match="another change"):
        await service.create(ROOT)


async def test_what_another_program_revoked_ends_here_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_service, "RECONCILE_INTERVAL", 0.0)
    store, access = MemoryStore(), Access()
    here, there = KeyService(access, store), KeyService(Access(), store)
    await here.create(ROOT)
    _, key = await here.create(CI)
    assert access.identify([key])
    ended = asyncio.get_running_loop().create_future()
    access.listen(lambda holder, error: ended.set_result((holder.name, error.message)))
    await there.reconcile()
    following = asyncio.create_task(here.follow())
    await there.revoke("ci")
    async with asyncio.timeout(HANGS):
        assert await ended == ("ci", "the key 'ci' was revoked")
    following.cancel()
    with pytest.raises(Unauthorized, match="revoked"):
        access.identify([key])


@pytest.mark.parametrize("error", [StoreAway("no route"), OverflowError("no route")])
async def test_a_look_in_vain_changes_nothing_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    store, access = MemoryStore(), Access()
    service = KeyService(access, store)
    _, key = await service.create(ROOT)

    async def away() -> list[SavedKey]:
        raise error

    monkeypatch.setattr(store, "load_keys", away)
    for _ in range(2):
        assert not await service.reconcile()
    assert access.identify([key])
    assert len(caplog.records) == 1 and "no route" in caplog.text


@pytest.mark.parametrize(
    "key",
    [
        record("a", 1),
        record("b", 2, "agent", labels=(("gpu", "ñ"),), limits=CallerLimits(models=("m",))),
        record("c", 3, "admin", limits=CallerLimits(max_tokens=5, priority="batch"), revision=7),
        record("d", 4, expires_at=5.5, revoked_at=3.25, rotated_at=2.0),
    ],
)
def test_it_comes_back_as_it_was(key: AccessKey) -> None:
    assert restored(saved(key)) == key


@pytest.mark.parametrize("fields", [{"role": "emperor"}, {"limits": '{"max_speed": 1}'}])
def test_what_a_later_version_wrote_is_refused(fields: dict[str, str]) -> None:
    plain = saved(record("a", 1))
    names = [name for name in plain.__slots__ if name not in fields]
    with pytest.raises(InvalidRequest):
        restored(SavedKey(**{name: getattr(plain, name) for name in names}, **fields))
