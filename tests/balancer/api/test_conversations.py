"""Conversations here, and at other balancers."""

from dataclasses import dataclass
from typing import Any

import pytest

from arriero.balancer.api.conversation_store import ConversationStore, E
from arriero.balancer.api.conversations import Conversations
from arriero.shared.errors import StoreUnavailable


@dataclass(frozen=True)
class Entry:
    num_bytes: int = 10


class Shared:
    """What all have, and what was told to be kept."""

    def __init__(self, **others: Any) -> None:
        self.entries = others
        self.kept: list[tuple[str, int, str | None]] = []
        self.used: list[str] = []

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None:
        self.kept.append((id, num_bytes, owner))
        self.entries.setdefault(id, entry)

    async def written(self, id: str) -> None: ...

    async def has(self, id: str, kind: type, owner: str | None) -> bool:
        self.used.append(id)
        return id in self.entries

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None:
        found: E | None = self.entries.get(id)
        return found

    async def forget(self, id: str, kind: type, owner: str | None) -> bool:
        return self.entries.pop(id, None) is not None


async def test_alone_everything_is_in_memory() -> None:
    alone = Conversations(clock=lambda: 1.0)
    assert alone.put("a", Entry(), 0.0, owner="ana")
    assert await alone.find("a", Entry, owner="ana") == Entry()
    assert await alone.find("a", Entry) is None
    assert await alone.forget("a", Entry, owner="ana")
    assert not await alone.forget("a", Entry, owner="ana")


async def test_what_is_kept_is_shared() -> None:
    shared = Shared()
    one = Conversations(ConversationStore(max_bytes=20), shared, clock=lambda: 1.0)
    assert one.put("a", Entry(), 0.0, owner="ana")
    assert not one.put("b", Entry(21), 0.0)
    assert shared.kept == [("a", 10, "ana")]
    assert await one.find("a", Entry, owner="ana") == Entry()
    assert shared.used == ["a"]


async def test_what_others_have_is_found_and_forgotten() -> None:
    one = Conversations(None, Shared(a=Entry(7)), clock=lambda: 1.0)
    assert await one.find("a", Entry) == Entry(7)
    assert await one.forget("a", Entry)
    assert await one.find("a", Entry) is None


async def test_what_another_balancer_removed_is_gone_here_too() -> None:
    one = Conversations(None, shared := Shared(), clock=lambda: 1.0)
    one.put("a", Entry(), 0.0)
    one.put("b", Changing(1), 0.0)
    one.memory.put("here", Entry(), 0.0)
    shared.entries.clear()
    assert await one.find("a", Entry) is None
    assert await one.find_newest("b", Changing) is None
    assert not one.memory.is_shared("a"), "it takes no memory any more"
    assert await one.find("here", Entry) == Entry(), "of a response in the background"


async def test_while_the_store_is_away_what_is_here_goes_on_here() -> None:
    one = Conversations(None, Away(), clock=lambda: 1.0)
    one.put("a", Entry(), 0.0)
    assert await one.find("a", Entry) == Entry()
    with pytest.raises(StoreUnavailable):
        await one.find("b", Entry)


# ---- conversations that change


@dataclass(frozen=True)
class Changing:
    version: int
    num_bytes: int = 10


class Away(Shared):
    async def has(self, id: str, kind: type, owner: str | None) -> bool:
        raise StoreUnavailable("the store is away")

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None:
        raise StoreUnavailable("the store is away")


async def test_the_newest_counts_wherever_it_is() -> None:
    one = Conversations(None, Shared(a=Changing(2), b=Changing(2)), clock=lambda: 1.0)
    one.put("a", Changing(1), 0.0)
    one.put("b", Changing(3), 0.0)
    assert await one.find_newest("a", Changing) == Changing(2)
    assert await one.find_newest("b", Changing) == Changing(3)
    assert await one.find_newest("d", Changing) is None
    assert await Conversations().find_newest("a", Changing) is None


async def test_while_the_store_is_away_what_is_here_is_the_newest() -> None:
    one = Conversations(None, Away(), clock=lambda: 1.0)
    one.put("a", Changing(1), 0.0)
    assert await one.find_newest("a", Changing) == Changing(1)
    with pytest.raises(StoreUnavailable):
        await one.find_newest("b", Changing)


def test_what_is_here_is_asked_for_by_what_is_known() -> None:
    one = Conversations(clock=lambda: 1.0)
    one.put("a", Changing(2), 0.0, owner="ana")
    assert one.newest_here("a", Changing(1), owner="ana") == Changing(2)
    assert one.newest_here("a", Changing(3), owner="ana") == Changing(3)
    assert one.newest_here("a", Changing(1), owner="ben") == Changing(1)
