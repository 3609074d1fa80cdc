"""The interface that every store has, and its errors."""

from collections.abc import Sequence
from typing import Protocol

from .records import (
    EndedRequest,
    EndingFilter,
    Persist,
    SavedCordon,
    SavedKey,
    SavedState,
    SavedStep,
    StepRange,
    UsageQuery,
    UsageRow,
    UsageSum,
)


class StoreAway(Exception):
    """The store cannot be reached or cannot write; a retry may help. Holds no password."""


class StoreRefused(Exception):
    """The store cannot be used as it is: one sentence with what to do. Holds no password."""


class RevisionConflict(Exception):
    """Somebody else saved in the meantime; `current` is what is saved now."""

    def __init__(self, current: SavedState | None) -> None:
        revision = 0 if current is None else current.revision
        super().__init__(f"the saved revision is {revision}")
        self.current = current


class KeyConflict(Exception):
    """Somebody else changed the key in the meantime; `current` is what is saved now, if any."""

    def __init__(self, current: SavedKey | None) -> None:
        super().__init__("the saved key is another one")
        self.current = current


class Store(Protocol):
    """Keeps the desired state. Every method but `close` raises `StoreAway`.

    A method that returns has written for good: it is there after a crash of any process.
    """

    async def load_desired_state(self) -> SavedState | None:
        """The desired state, if one was ever saved."""

    async def save_desired_state(self, persist: Persist) -> None:
        """Save it. Raises `RevisionConflict`. The same save again, as after a lost answer, is well.

        Of writers that compete for one revision exactly one succeeds.
        """

    async def close(self) -> None:
        """Let go of files and connections."""


class KeyStore(Protocol):
    """Keeps the access keys; as `Store` otherwise."""

    async def load_keys(self) -> list[SavedKey]:
        """All of them, by name."""

    async def save_key(self, key: SavedKey) -> None:
        """Add revision 1, or replace the revision before. Raises `KeyConflict`.

        The same save again, as after a lost answer, is well.
        """

    async def forget_key(self, name: str, revision: int) -> None:
        """Delete this revision; well if it is gone. Raises `KeyConflict`."""


class CordonStore(Protocol):
    """Keeps operators' cordons; as `Store` otherwise."""

    async def load_cordons(self) -> list[SavedCordon]:
        """All of them, oldest first; at most `MAX_CORDONS`."""

    async def save_cordon(self, cordon: SavedCordon) -> None:
        """Add it, or replace that of the same agent."""

    async def forget_cordon(self, agent: str) -> None:
        """Delete it; well if it is gone."""


class HistoryStore(Protocol):
    """Keeps the history; as `Store` otherwise. In memory it would be there twice, so none does."""

    async def append_history(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        """Write these and delete what is too old, all at once.

        Steps and endings that are there already stay; rows of usage are replaced.
        """

    async def load_steps(self, wanted: StepRange, *, but: str | None = None) -> list[SavedStep]:
        """These steps of all sources, or of all `but` one, oldest first.

        At most `STEPS_KEPT` times `MAX_SOURCES`, the latest ones.
        """

    async def find_endings(self, wanted: EndingFilter) -> tuple[list[EndedRequest], int]:
        """Ended requests in their order, the latest first; and how many are kept of all."""

    async def load_usage(self, query: UsageQuery, run: str, held_from: int) -> list[UsageSum]:
        """Sums in the order of their columns, without what `run` counted from `held_from` on.

        That is in memory. At most `query.limit`.
        """
