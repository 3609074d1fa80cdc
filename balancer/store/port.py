"""The errors of a store."""

from .records import SavedKey, SavedState


class StoreAway(Exception):
    """The store cannot be reached or written. A retry may help. The message has no password."""


class StoreRefused(Exception):
    """The store cannot be used in its present form.

    The message is one sentence with advice, and has no password.
    """


class RevisionConflict(Exception):
    """Another call saved a state in the meantime. `current` is the saved state."""

    def __init__(self, current: SavedState | None) -> None:
        revision = 0 if current is None else current.revision
        super().__init__(f"the saved revision is {revision}")
        self.current = current


class KeyConflict(Exception):
    """Another call changed the key in the meantime. `current` is the saved key, if any."""

    def __init__(self, current: SavedKey | None) -> None:
        super().__init__("the saved key is another one")
        self.current = current
