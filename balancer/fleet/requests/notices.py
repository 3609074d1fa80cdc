"""The notices of one request: each is told once, and of many only the first.

An agent that goes on with a request tells what the agent before it told.
"""

from ....shared.inference import Notice

MAX_NOTICES = 64
"""Notices that a request's client gets; further ones are counted, and the last notice says so."""


class Notices:
    """What a client was told beside its answer."""

    __slots__ = ("_num_left_out", "_told")

    def __init__(self) -> None:
        self._told: set[Notice] = set()
        self._num_left_out = 0

    def is_new(self, notice: Notice) -> bool:
        """Whether to tell the client; it counts as told."""
        if notice in self._told:
            return False
        if len(self._told) == MAX_NOTICES:
            self._num_left_out += 1
            return False
        self._told.add(notice)
        return True

    @property
    def last(self) -> Notice | None:
        """To be told before the end: how many the client did not get, if there were any."""
        if not self._num_left_out:
            return None
        message = (
            f"only the first {MAX_NOTICES} notices are passed on; left out: {self._num_left_out}"
        )
        return Notice("notices_left_out", message)
