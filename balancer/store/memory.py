"""`memory://`: a store that lives as long as the balancer."""

from .port import KeyConflict, RevisionConflict
from .records import MAX_CORDONS, Persist, SavedCordon, SavedKey, SavedState


class MemoryStore:
    """The default `Store`, a `KeyStore` and a `CordonStore`."""

    def __init__(self) -> None:
        self._state: SavedState | None = None
        self._keys: dict[str, SavedKey] = {}
        self._cordons: dict[str, SavedCordon] = {}

    async def load_desired_state(self) -> SavedState | None:
        return self._state

    async def save_desired_state(self, persist: Persist) -> None:
        state = SavedState(persist.expected + 1, persist.document)
        if self._state == state:
            return
        if persist.expected != (0 if self._state is None else self._state.revision):
            raise RevisionConflict(self._state)
        self._state = state

    async def load_keys(self) -> list[SavedKey]:
        return [self._keys[name] for name in sorted(self._keys)]

    async def save_key(self, key: SavedKey) -> None:
        current = self._keys.get(key.name)
        if current == key:
            return
        if key.revision != (1 if current is None else current.revision + 1):
            raise KeyConflict(current)
        self._keys[key.name] = key

    async def forget_key(self, name: str, revision: int) -> None:
        current = self._keys.get(name)
        if current is None:
            return
        if current.revision != revision:
            raise KeyConflict(current)
        del self._keys[name]

    async def load_cordons(self) -> list[SavedCordon]:
        return sorted(self._cordons.values(), key=lambda each: each.since)

    async def save_cordon(self, cordon: SavedCordon) -> None:
        self._cordons[cordon.agent] = cordon
        if len(self._cordons) > MAX_CORDONS:
            del self._cordons[(await self.load_cordons())[0].agent]

    async def forget_cordon(self, agent: str) -> None:
        self._cordons.pop(agent, None)

    async def close(self) -> None:
        pass
