"""`memory://`: a store that lives as long as the balancer."""

from .port import RevisionConflict
from .records import Persist, SavedState


class MemoryStore:
    """The default `Store`."""

    def __init__(self) -> None:
        self._state: SavedState | None = None

    async def load_desired_state(self) -> SavedState | None:
        return self._state

    async def save_desired_state(self, persist: Persist) -> None:
        state = SavedState(persist.expected + 1, persist.document)
        if self._state == state:
            return
        if persist.expected != (0 if self._state is None else self._state.revision):
            raise RevisionConflict(self._state)
        self._state = state

    async def close(self) -> None:
        pass
