"""A store that can be away, can hang, and can fail."""

import asyncio
from collections.abc import Sequence

from arriero.balancer.store.history import HistoryStore
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import (
    EndedRequest,
    EndingFilter,
    Persist,
    SavedStep,
    StepRange,
    UsageQuery,
    UsageRow,
    UsageSum,
)
from tests.balancer.stores import MemoryStore


class FakeStore(MemoryStore):
    """In memory, as if it lasted. `problem` is raised by every call until it is `None`."""

    history: "FakeHistory"

    def __init__(self) -> None:
        super().__init__()
        self.history = FakeHistory(self)
        self.problem: Exception | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.called = asyncio.Condition()
        self.num_calls = 0

    @property
    def is_lasting(self) -> bool:
        return True

    def goes_away(self) -> None:
        self.problem = StoreAway("connection refused")

    async def calls(self, number: int) -> None:
        """Wait until so many calls came."""
        async with self.called:
            await self.called.wait_for(lambda: self.num_calls >= number)

    async def save_desired_state(self, persist: Persist) -> None:
        await self.answer()
        await super().save_desired_state(persist)

    async def answer(self) -> None:
        async with self.called:
            self.num_calls += 1
            self.called.notify_all()
        await self.is_open.wait()
        if self.problem is not None:
            raise self.problem


class FakeHistory(HistoryStore):
    """Answers as `store` does; it has what was written last besides."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__(store.database)
        self._store = store
        self.steps: list[SavedStep] = []
        self.endings: list[EndedRequest] = []

    async def append_history(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        await self._store.answer()
        await super().append_history(steps, endings, usage)
        self.steps += steps
        self.endings += endings

    async def load_usage(self, query: UsageQuery, run: str, held_from: int) -> list[UsageSum]:
        await self._store.answer()
        return await super().load_usage(query, run, held_from)

    async def load_steps(self, step_range: StepRange, *, but: str | None = None) -> list[SavedStep]:
        await self._store.answer()
        return await super().load_steps(step_range, but=but)

    async def find_endings(self, criteria: EndingFilter) -> tuple[list[EndedRequest], int]:
        await self._store.answer()
        return await super().find_endings(criteria)
