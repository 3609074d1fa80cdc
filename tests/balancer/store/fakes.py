"""A store that can be away, can hang, and can fail."""

import asyncio
from collections.abc import Sequence
from math import inf

from arriero.balancer.history.endings import latest
from arriero.balancer.history.usage import added_up
from arriero.balancer.store.memory import MemoryStore
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import (
    EndedRequest,
    EndingFilter,
    Persist,
    SavedState,
    SavedStep,
    StepRange,
    UsageQuery,
    UsageRow,
    UsageSum,
)


class FakeStore:
    """A memory store with a history. `problem` is raised by every call until it is `None`."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.problem: Exception | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.called = asyncio.Condition()
        self.num_calls = 0
        self.steps: list[SavedStep] = []
        self.endings: list[EndedRequest] = []
        self.usage: dict[tuple[str, int, str, str], UsageRow] = {}

    def goes_away(self) -> None:
        self.problem = StoreAway("connection refused")

    async def calls(self, number: int) -> None:
        """Wait until so many calls came."""
        async with self.called:
            await self.called.wait_for(lambda: self.num_calls >= number)

    async def load_desired_state(self) -> SavedState | None:
        return await self.memory.load_desired_state()

    async def save_desired_state(self, persist: Persist) -> None:
        await self._answer()
        await self.memory.save_desired_state(persist)

    async def append_history(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        await self._answer()
        self.steps += steps
        self.endings += endings
        self.usage |= {(row.run, row.day, row.caller, row.model): row for row in usage}

    async def load_usage(self, query: UsageQuery, run: str, held_from: int) -> list[UsageSum]:
        await self._answer()
        rows = self.usage.values()
        days = range(query.since, query.until + 1)
        wanted = [row for row in rows if row.run != run or row.day < held_from]
        return added_up([row for row in wanted if row.day in days], query)

    async def load_steps(self, wanted: StepRange, *, but: str | None = None) -> list[SavedStep]:
        await self._answer()
        until = inf if wanted.until is None else wanted.until
        found = [each for each in self.steps if each.width == wanted.width and each.source != but]
        return sorted(
            (each for each in found if wanted.since <= each.at < until), key=lambda each: each.at
        )

    async def find_endings(self, wanted: EndingFilter) -> tuple[list[EndedRequest], int]:
        await self._answer()
        return latest(self.endings, wanted), len(self.endings)

    async def close(self) -> None:
        pass

    async def _answer(self) -> None:
        async with self.called:
            self.num_calls += 1
            self.called.notify_all()
        await self.is_open.wait()
        if self.problem is not None:
            raise self.problem
