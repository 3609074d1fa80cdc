"""Who is let in, what ends with a key, and when the store is asked."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.access_key import AccessKey
from arriero.balancer.access.identity import CallerLimits, Identity
from arriero.balancer.store.port import StoreAway
from arriero.shared.errors import Unauthorized
from tests.balancer.access.builders import record, secret
from tests.waiting import HANGS

A = record("a", 1)


class Shelf:
    """A store whose keys the test changes."""

    def __init__(self, *keys: AccessKey) -> None:
        self.keys = list(keys)
        self.num_loads = 0
        self.is_away = False

    async def load(self) -> Sequence[AccessKey]:
        self.num_loads += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreAway("no answer")
        return list(self.keys)


class Clock:
    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


async def test_without_keys_everybody_is_let_in() -> None:
    access = Access()
    assert access.is_open
    assert await access.admitted([]) is None
    assert await access.admitted(["sk-whatever"]) is None
    assert await access.admitted([secret(1)]) is None


async def test_with_one_key_everybody_needs_one() -> None:
    access = Access([A])
    assert await access.admitted([secret(1)]) == A.identity
    with pytest.raises(Unauthorized, match="an access key is needed"):
        await access.admitted([])
    with pytest.raises(Unauthorized, match="not known"):
        await access.admitted([secret(2)])


async def test_any_of_the_keys_that_are_sent_will_do() -> None:
    access = Access([A, record("old", 3, revoked_at=1.0)])
    assert await access.admitted(["sk-others", secret(1)]) == A.identity
    with pytest.raises(Unauthorized, match="revoked"):
        await access.admitted(["sk-others", secret(3)])


async def test_a_key_that_another_program_made_is_found_in_the_store() -> None:
    shelf = Shelf(A)
    access = Access([A], load=shelf.load)
    shelf.keys.append(record("b", 2))
    holder = await access.admitted([secret(2)])
    assert holder is not None and holder.name == "b"
    assert shelf.num_loads == 1


async def test_wrong_keys_do_not_ask_the_store_each_time() -> None:
    shelf = Shelf(A)
    access = Access([A], load=shelf.load)
    tries = await asyncio.gather(
        *(access.admitted([secret(number)]) for number in range(5, 55)), return_exceptions=True
    )
    assert all(isinstance(each, Unauthorized) for each in tries)
    with pytest.raises(Unauthorized):
        await access.admitted(["not-a-key"])
    assert shelf.num_loads == 1


async def test_the_first_key_in_the_store_closes_an_open_balancer() -> None:
    shelf = Shelf()
    access = Access(load=shelf.load)
    shelf.keys.append(A)
    assert await access.admitted([secret(1)]) == A.identity
    assert not access.is_open


async def test_a_store_that_had_keys_and_has_none_lets_nobody_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Shelf(A)
    access = Access([A], load=shelf.load)
    assert access.issues() == ()
    shelf.keys.clear()
    access.replace([])
    for keys in ([], [secret(1)], ["sk-others"]):
        with pytest.raises(Unauthorized):
            await access.admitted(keys)
    assert [each.code for each in access.issues()] == ["keys_missing"]
    assert "the access keys are gone from the store" in caplog.text
    shelf.keys.append(record("b", 2))
    async with asyncio.timeout(HANGS):
        assert await Access(had_keys=True, load=shelf.load).admitted([secret(2)])
    access.put(record("b", 2))
    assert access.issues() == ()


def test_the_fixed_key_does_not_hide_that_the_stores_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    access = Access(fixed=record("admin-key-file", 9, "admin"), had_keys=True)
    assert [each.code for each in access.issues()] == ["keys_missing"]
    assert len(caplog.messages) == 1, "it is said at the start"
    access.replace([])
    assert len(caplog.messages) == 1
    assert Access(fixed=record("admin-key-file", 9, "admin")).issues() == ()


async def test_without_the_store_known_keys_go_on() -> None:
    shelf = Shelf(A)
    shelf.is_away = True
    access = Access([A], load=shelf.load)
    with pytest.raises(Unauthorized):
        await access.admitted([secret(2)])
    assert await access.admitted([secret(1)]) == A.identity


async def test_the_fixed_key_stays_whatever_the_store_has() -> None:
    fixed = record("admin-key-file", 9, "admin")
    access = Access(fixed=fixed)
    assert not access.is_open
    access.replace([A])
    assert await access.admitted([secret(9)]) == fixed.identity
    access.replace([A, record("same", 9, "admin", revoked_at=2.0)])
    with pytest.raises(Unauthorized, match="'same' was revoked"):
        await access.admitted([secret(9)])


async def test_another_fixed_key_takes_the_place_of_the_first() -> None:
    access = Access([A], fixed=record("admin-key-file", 9, "admin"))
    ended: list[Identity] = []
    access.listen(lambda holder, _: ended.append(holder))
    new = record("admin-key-file", 8, "admin")
    access.fix(new)
    assert await access.admitted([secret(8)]) == new.identity
    assert await access.admitted([secret(1)]) == A.identity
    with pytest.raises(Unauthorized):
        await access.admitted([secret(9)])
    assert [each.name for each in ended] == ["admin-key-file"]
    access.fix(new)
    assert len(ended) == 1, "the same key again ends nothing"


# ---- what is open ends


async def test_revoking_ends_what_is_open_and_nothing_else() -> None:
    access = Access([A, record("b", 2)])
    ended: list[str] = []
    told: list[Identity] = []
    access.listen(lambda holder, _error: told.append(holder))
    with (
        access.lease(A.identity, lambda error: ended.append(error.message)),
        access.lease(A.identity, lambda _error: ended.append("second")),
        access.lease(record("b", 2).identity, lambda _error: ended.append("b's")),
        access.lease(None, lambda _error: ended.append("nobody's")),
    ):
        assert access.num_leases == 3
        access.put(record("a", 1, revoked_at=10.0))
        assert ended == ["the key 'a' was revoked", "second"]
        assert told == [A.identity]
    assert access.num_leases == 0


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("second", [0, 1])
async def test_leases_of_one_key_may_be_given_back_in_any_order(first: int, second: int) -> None:
    access = Access([A])
    ended: list[int] = []
    leases = {number: access.lease(A.identity, partial(note, ended, number)) for number in range(3)}
    for lease in leases.values():
        lease.__enter__()
    leases.pop(first).__exit__(None, None, None)
    leases.pop(sorted(leases)[second]).__exit__(None, None, None)
    assert access.num_leases == 1
    access.put(record("a", 1, revoked_at=10.0))
    assert ended == list(leases), "the one that is left is told"
    leases.popitem()[1].__exit__(None, None, None)
    assert access.num_leases == 0


def note(ended: list[int], number: int, _error: Unauthorized) -> None:
    ended.append(number)


async def test_a_lease_that_ended_takes_no_later_one_along() -> None:
    """The key was revoked and is back, as after a restore, while the first lease still ends."""
    access = Access([A])
    ended: list[int] = []
    with access.lease(A.identity, partial(note, ended, 1)):
        access.put(record("a", 1, revoked_at=10.0))
        access.put(A)
        later = access.lease(A.identity, partial(note, ended, 2))
        later.__enter__()
    access.put(record("a", 1, revoked_at=10.0))
    assert ended == [1, 2]
    later.__exit__(None, None, None)


@pytest.mark.parametrize(
    "lost",
    [
        [],
        [record("a", 1, revoked_at=1.0)],
        [record("a", 1, expires_at=1.0)],
        [record("a", 2)],
        [record("a", 1, "viewer")],
        [replace(A, limits=CallerLimits(models=("one",)))],
    ],
)
async def test_what_is_opened_with_a_key_that_has_just_ended_ends_at_once(
    lost: list[AccessKey],
) -> None:
    access = Access([A], clock=lambda: 10.0)
    ended: list[int] = []
    with access.lease(A.identity, partial(note, ended, 1)):
        access.replace(lost)
        assert ended == [1]
    with access.lease(A.identity, partial(note, ended, 2)):
        assert ended == [1, 2]
    access.stop()


async def test_a_session_that_is_over_ends_what_was_opened_by_it_alone() -> None:
    access = Access([A])
    ended: list[int] = []
    here, there = replace(A.identity, session="one"), replace(A.identity, session="two")
    with (
        access.watch(here, partial(note, ended, 1)),
        access.watch(there, partial(note, ended, 2)),
        access.watch(A.identity, partial(note, ended, 3)),
    ):
        access.end_session("one", "logged out")
        assert ended == [1]
        access.forget("a")
        assert ended == [1, 2, 3]


async def test_who_needed_no_key_is_told_of_the_first_one() -> None:
    access = Access()
    ended: list[int] = []
    with access.watch(None, partial(note, ended, 1)):
        access.put(A)
        assert ended == [1]
    with access.watch(None, partial(note, ended, 2)):
        assert ended == [1, 2]


async def test_rotating_ends_what_the_old_secret_opened() -> None:
    access = Access([A])
    ended: list[str] = []
    rotated = record("a", 2, rotated_at=10.0)
    with access.lease(A.identity, lambda error: ended.append(error.message)):
        access.put(rotated)
        with access.lease(rotated.identity, lambda _error: ended.append("new")):
            access.put(record("other", 3))
    assert ended == ["the key 'a' was replaced by a new key"]


async def test_expiry_ends_it_without_anybody_asking() -> None:
    clock = Clock()
    access = Access([record("a", 1, expires_at=10.001)], clock=clock)
    ended: asyncio.Queue[str] = asyncio.Queue()
    access.start()
    with access.lease(A.identity, lambda error: ended.put_nowait(error.message)):
        clock.now = 10.5
        assert "expired" in await asyncio.wait_for(ended.get(), HANGS)
    access.stop()


async def test_a_lease_that_was_given_back_is_not_told() -> None:
    access = Access([A])
    with access.lease(A.identity, lambda _error: pytest.fail("told")):
        pass
    access.put(record("a", 1, revoked_at=10.0))


async def test_who_made_something_is_known_while_the_key_opens_something() -> None:
    key = record("ana", 1)
    access = Access([key, record("bob", 2)], clock=lambda: 10.0)
    assert access.holder_of(key.identity.owner) == key.identity
    access.put(replace(key, revoked_at=9.0, revision=2))
    assert access.holder_of(key.identity.owner) is None
    assert access.holder_of("") is None
    access.stop()
