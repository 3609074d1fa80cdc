"""Operators' drains, in the fleet and in the store: a drained host stays drained.

The fleet obeys at once. The drain is saved afterwards, so that it survives a restart of the
balancer. Invariant: saves happen one at a time, in the order of the changes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

from ....shared.errors import StoreUnavailable
from ....shared.inference import AgentId
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import Cordon, SharedCordon
from ...store.port import StoreAway
from ...store.records import SavedCordon
from ...store.store import Store

logger = logging.getLogger(__name__)

SAVE_TIMEOUT = 5.0
"""Seconds after which a store without an answer counts as away."""

Save = Coroutine[None, None, None]


class DrainService:
    """Drains and resumes agents.

    `drain` and `resume` raise `NotFound`, or `StoreUnavailable` if the change was made but not
    saved. Repeating the call saves the change again.
    """

    def __init__(
        self,
        runtime: FleetRuntime,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._clock = clock
        self._turn = asyncio.Lock()
        self._saves: set[asyncio.Task[None]] = set()
        self._num_begun = 0

    async def restore(self) -> None:
        """Apply the saved drains. Raises `StoreAway`."""
        saved = await self._store.load_cordons()
        self._runtime.restore_cordons(Cordon(AgentId(each.agent), each.name) for each in saved)

    async def drain(self, agent: AgentId, within: float | None) -> None:
        """Give an agent no new requests.

        If `within` is given, requests that still run after this time move to other agents. Requests
        that cannot move end.
        """
        self._runtime.cordon(agent, within)
        if (cordon := self._runtime.views.cordon_of(agent)) is not None:
            now = self._clock()
            deadline = None if within is None else now + within
            saved = SavedCordon(cordon.first, cordon.name, now, deadline)
            await self._save(self._store.save_cordon(saved))

    async def resume(self, agent: AgentId) -> None:
        """Give an agent requests again."""
        cordon = self._runtime.views.cordon_of(agent)
        self._runtime.resume(agent)
        await self._save(self._store.forget_cordon(agent if cordon is None else cordon.first))

    async def reconcile(self) -> bool:
        """Apply the drains of other balancers' operators.

        Returns whether the store could be read.
        """
        try:
            async with asyncio.timeout(SAVE_TIMEOUT):
                saved = await self._all_saved()
        except (StoreAway, TimeoutError) as error:
            logger.warning(
                "the balancer could not read from the store which agents other balancers drain: %s",
                error,
            )
            return False
        self._runtime.apply_cordons([self._cordon(each) for each in saved])
        return True

    def _cordon(self, saved: SavedCordon) -> SharedCordon:
        cordon = Cordon(AgentId(saved.agent), saved.name)
        if saved.deadline is None:
            return SharedCordon(cordon)
        return SharedCordon(cordon, max(0.0, saved.deadline - self._clock()))

    async def _all_saved(self) -> list[SavedCordon]:
        """Read the saved drains at a moment without a save in progress here."""
        while True:
            if self._saves:
                await asyncio.wait(set(self._saves))
            num_begun = self._num_begun
            saved = await self._store.load_cordons()
            if self._num_begun == num_begun:
                return saved

    async def _save(self, save: Save) -> None:
        """Save a drain, even if the caller leaves."""
        task = asyncio.get_running_loop().create_task(self._in_turn(save))
        self._num_begun += 1
        self._saves.add(task)
        task.add_done_callback(self._saves.discard)
        await asyncio.shield(task)

    async def _in_turn(self, save: Save) -> None:
        async with self._turn:
            try:
                async with asyncio.timeout(SAVE_TIMEOUT):
                    await save
            except (StoreAway, TimeoutError) as error:
                reason = str(error) or f"no answer within {SAVE_TIMEOUT:g} s"
                raise StoreUnavailable(
                    f"it is done, but not saved: a restart of the balancer forgets it ({reason})"
                ) from error
