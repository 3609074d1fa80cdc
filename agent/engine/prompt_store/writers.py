"""Who may write which key of the prompt cache: one request a key at a time.

Two requests that save under one key would overwrite each other, so the second is refused before it
runs. Keys are held by requests that hold slots, which bounds them.
"""


class Writers:
    """The keys that running requests are going to save."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def claim(self, key: str) -> bool:
        """Whether `key` was free; it is taken now, until `release`."""
        if key in self._keys:
            return False
        self._keys.add(key)
        return True

    def release(self, key: str) -> None:
        """Its writer is done. Raises `KeyError` when nobody had claimed `key`."""
        self._keys.remove(key)
