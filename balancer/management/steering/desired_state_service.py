"""Passes the desired state between operators, the store and the fleet.

A change takes effect after the store has saved it. Until then further changes are refused, and the
fleet keeps the present state. Invariant: at most one save is in progress.
"""

import asyncio
import logging

from ....shared.errors import Conflict, InvalidRequest, RequestError, StoreUnavailable
from ...control.desired_state import DesiredState, desired_state_json, parse_desired_state
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...store import write_behind
from ...store.health import StoreHealth
from ...store.port import RevisionConflict, StoreAway
from ...store.records import Persist, SavedState
from ...store.store import Store

logger = logging.getLogger(__name__)

RECONCILE_TIMEOUT = 15.0
"""Maximum seconds to read the store, including the time for a save in progress."""

SAVE_TIMEOUT = 10.0
"""Maximum seconds for a save with its retries."""


class DesiredStateService:
    """The desired state. `revision` is 0 before the first desired state."""

    def __init__(self, runtime: FleetRuntime, store: Store, health: StoreHealth) -> None:
        """Make a service without a state.

        `health` is the health of `store`, shared with other writers.
        """
        self.revision = 0
        self.state = DesiredState()
        self._runtime = runtime
        self._store = store
        self._health = health
        self._must_warn = not store.is_lasting
        self._saving: asyncio.Task[RequestError | None] | None = None

    @property
    def is_saving(self) -> bool:
        """Whether a save is in progress."""
        return self._saving is not None

    def restore(self, saved: SavedState | None) -> None:
        """Apply the saved state. Raises `InvalidRequest` if this version cannot read it."""
        if saved is not None:
            self.state, self.revision = parse_desired_state(saved.document), saved.revision
            self._runtime.restored(self.state)

    async def put(self, state: DesiredState, *, expected: int | None) -> None:
        """Replace the desired state by `state`.

        If `expected` is given, the present revision must equal `expected`. Raises `Conflict`, or
        `StoreUnavailable`. If the caller leaves, the change is made anyway.
        """
        self._check(expected)
        if state == self.state and self.revision:
            return
        self._saving = asyncio.get_running_loop().create_task(self._saved(state))
        if (error := await asyncio.shield(self._saving)) is not None:
            raise error

    async def flush(self, within: float) -> None:
        """Wait at most `within` seconds for the save in progress, and then cancel the save."""
        if self._saving is not None:
            _, late = await asyncio.wait({self._saving}, timeout=within)
            for saving in late:
                logger.warning("a save of the desired state did not finish in time and is lost")
                saving.cancel()

    async def _saved(self, state: DesiredState) -> RequestError | None:
        """Save a state and apply it, even if the caller has left. Returns the error, if any."""
        try:
            await self._save(Persist(self.revision, desired_state_json(state).decode()))
        except RevisionConflict as conflict:
            self._health.answered()
            self._apply_saved(conflict.current)
            return _stale(self.revision)
        except StoreAway as error:
            problem = f"the store is away: {error}"
        except Exception:  # the boundary of a save
            logger.exception("unexpected error while saving the desired state")
            self._health.answered()
            self._health.failed()
            problem = "internal error; the balancer's log has the details"
        else:
            self._health.wrote()
            self._apply(state, self.revision + 1)
            return None
        finally:
            self._saving = None
        logger.warning("the desired state is not saved: %s", problem)
        return StoreUnavailable(f"the desired state is not saved: {problem}")

    async def _save(self, persist: Persist) -> None:
        """Save the state. While the store is away, retry until the deadline."""
        clock = asyncio.get_running_loop().time
        until, pause = clock() + SAVE_TIMEOUT, write_behind.FIRST_PAUSE
        while True:
            try:
                async with write_behind.in_time():
                    return await self._store.save_desired_state(persist)
            except StoreAway as error:
                self._health.went_away(error)
                if (left := until - clock()) <= 0:
                    raise
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, write_behind.LONGEST_PAUSE)

    async def reconcile(self) -> bool:
        """Apply a state that another balancer saved in the store.

        Returns whether the store could be read.
        """
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT):
                current = await self._newest()
        except (StoreAway, TimeoutError) as error:
            logger.warning(
                "the balancer could not read a changed desired state from the store: %s", error
            )
            return False
        if current is not None and current.revision > self.revision:
            self._apply_saved(current)
        return True

    async def _newest(self) -> SavedState | None:
        """Read the saved state at a moment without a save in progress here."""
        while True:
            if self._saving is not None:
                await asyncio.wait({self._saving})
            current = await self._store.load_desired_state()
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
        """Apply a state from the store, if any."""
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
