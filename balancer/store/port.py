"""The errors of a store."""

from .records import SavedKey, SavedState


class StoreAway(Exception):
    """The store cannot be reached or cannot write; a retry may help. Holds no password."""


class StoreRefused(Exception):
    """The store cannot be used as it is: one sentence with what to do. Holds no password."""


class RevisionConflict(Exception):
    """Another call saved in the meantime; `current` is what is saved now."""

    def __init__(self, current: SavedState | None) -> None:
        revision = 0 if current is None else current.revision
        super().__init__(f"the saved revision is {revision}")
        self.current = current


class KeyConflict(Exception):
    """Another call changed the key in the meantime; `current` is what is saved now, if any."""

    def __init__(self, current: SavedKey | None) -> None:
        super().__init__("the saved key is another one")
        self.current = current
