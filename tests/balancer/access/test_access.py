"""Who is let in, what ends with a key, and when the store is asked."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.access_key import AccessKey
from arriero.balancer.access.identity import Identity
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


async def test_rotating_ends_what_the_old_secret_opened() -> None:
    access = Access([A])
    ended: list[str] = []
    rotated = record("a", 2, rotated_at=10.0)
    with access.lease(A.identity, lambda error: ended.append(error.message)):
        access.put(rotated)
        with access.lease(rotated.identity, lambda _error: ended.append("new")):
            access.put(record("other", 3))
    assert ended == ["the key 'a' was replaced by another one"]


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
