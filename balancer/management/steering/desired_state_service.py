"""Passes the desired state between operators, the store and the fleet.

A change takes effect once the store has it. Until then further changes are refused, and the fleet
keeps the present state. Invariant: at most one save is in progress.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import assert_never

from ....shared.errors import Conflict, InvalidRequest, StoreUnavailable
from ...control.desired_state import DesiredState
from ...control.state_document import desired_state_json, parse_desired_state
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...store.port import StoreAway
from ...store.records import (
    Conflicted,
    NotPersisted,
    Persist,
    Persisted,
    PersistOutcome,
    SavedState,
)
from ...store.store import Store

logger = logging.getLogger(__name__)

RECONCILE_TIMEOUT = 15.0
"""Seconds to read the store; a save that is under way comes first."""


class DesiredStateService:
    """The desired state. `revision` is its revision; 0 before there was one."""

    def __init__(
        self,
        runtime: FleetRuntime,
        persist: Callable[[Persist], asyncio.Future[PersistOutcome]],
        *,
        is_lasting: bool = True,
    ) -> None:
        """`persist` belongs to the store's writer (`StoreWriter`).

        `is_lasting`: the store is on disk.
        """
        self.revision = 0
        self.state = DesiredState()
        self._runtime = runtime
        self._persist = persist
        self._must_warn = not is_lasting
        self._saving: asyncio.Future[PersistOutcome] | None = None

    def restore(self, saved: SavedState | None) -> None:
        """Apply the saved state. Raises `InvalidRequest` if this version cannot read it."""
        if saved is not None:
            self.state, self.revision = parse_desired_state(saved.document), saved.revision
            self._runtime.restored(self.state)

    async def put(self, state: DesiredState, *, expected: int | None) -> None:
        """Make `state` the desired state, replacing the revision `expected`, if given.

        Raises `Conflict`, or `StoreUnavailable`. If the caller leaves, the change is made anyway.
        """
        self._check(expected)
        if state == self.state and self.revision:
            return
        self._saving = self._persist(Persist(self.revision, desired_state_json(state).decode()))
        self._saving.add_done_callback(partial(self._save_ended, state))
        match await asyncio.shield(self._saving):
            case Conflicted():
                raise _stale(self.revision)
            case NotPersisted(reason=reason):
                raise StoreUnavailable(f"the desired state is not saved: {reason}")
            case Persisted():
                pass

    def _save_ended(self, state: DesiredState, saving: asyncio.Future[PersistOutcome]) -> None:
        """Apply the outcome of a save, even if its caller has left."""
        self._saving = None
        match saving.result():
            case Persisted():
                self._apply(state, self.revision + 1)
            case Conflicted(current=current):
                self._apply_saved(current)
            case NotPersisted(reason=reason):
                logger.warning("the desired state is not saved: %s", reason)
            case never:
                assert_never(never)

    async def reconcile(self, store: Store) -> bool:
        """Apply a state that another balancer saved in `store`.

        Returns whether the store could be read.
        """
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT):
                current = await self._saved_state(store)
        except (StoreAway, TimeoutError) as error:
            logger.warning(
                "the balancer could not read a changed desired state from the store: %s", error
            )
            return False
        if current is not None and current.revision > self.revision:
            self._apply_saved(current)
        return True

    async def _saved_state(self, store: Store) -> SavedState | None:
        """Read the saved state while nothing is being saved here."""
        while True:
            if self._saving is not None:
                await asyncio.wait({self._saving})
            current = await store.load_desired_state()
            if self._saving is None:
                return current

    def _check(self, expected: int | None) -> None:
        if expected is not None and expected != self.revision:
            raise _stale(self.revision)
        if self._saving is not None:
            raise Conflict("another change is being saved; try again in a moment")

    def _apply(self, state: DesiredState, revision: int) -> None:
        self.state, self.revision = state, revision
        logger.info(
            "the desired state now has revision %d, with %d models", revision, len(state.models)
        )
        if self._must_warn:
            self._must_warn = False
            logger.warning(
                "nothing is stored on disk: desired models, keys, usage and history are "
                "lost when this balancer ends; start it with --state sqlite:///arriero.db "
                "to keep them"
            )
        self._runtime.desire(state)

    def _apply_saved(self, current: SavedState | None) -> None:
        """Apply a state that another balancer with the same store saved."""
        if current is None:
            return
        try:
            state = parse_desired_state(current.document)
        except InvalidRequest as error:
            logger.error("the saved desired state cannot be read: %s", error.message)
            return
        self._apply(state, current.revision)


def _stale(revision: int) -> Conflict:
    return Conflict(
        f"the desired state is revision {revision} by now; read it again and repeat the change"
    )
