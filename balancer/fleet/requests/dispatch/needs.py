"""Requests that not every agent can serve, and the keys by which they find those that can.

An agent with an engine of its own can do everything, but for pictures, which take a projector. One
that forwards says what its server can do. What an agent lacks, requests that need it must not get.
They wait for a key of their own, `Able`, which every agent offers that can do all of it. As long as
nobody lacks anything there are no such keys.

Answers that go on by text are found in the same way, by `ByText`.

Invariant: `keys` has those of all requests that are here, and at most `MAX_UNUSED` others.
"""

from collections.abc import Callable

from .....shared.inference import GenerateRequest, RequestId
from .....shared.inference.abilities import ABILITIES, Ability, needs_of
from ...tally import Tally
from ..routing import Able, ByText

Key = Able | ByText

MAX_UNUSED = 16
"""Keys that are kept for the next request like those before."""


class Needs:
    """`lacked` is what any agent was seen to lack; it only grows, up to all abilities there are."""

    def __init__(self) -> None:
        self.lacked: frozenset[Ability] = frozenset()
        self._keys: dict[Key, None] = {}
        self._used: Tally[Key] = Tally()
        self._by_request: dict[RequestId, Key] = {}

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._keys)

    def seen(self, abilities: frozenset[Ability]) -> bool:
        """An agent can do this. Returns whether requests are to be looked at again."""
        before, self.lacked = self.lacked, self.lacked | (ABILITIES - abilities)
        return self.lacked != before

    def key_of(self, request: GenerateRequest) -> Able | None:
        """What the request waits for, unless every agent of its model can serve it."""
        if not self.lacked:
            return None
        special = needs_of(request, self.lacked)
        return Able(request.model, tuple(sorted(special))) if special else None

    def keys_for(
        self,
        model: str | None,
        abilities: frozenset[Ability],
        goes_on_from: Callable[[str | None], bool] = lambda _: True,
    ) -> tuple[Key, ...]:
        """Those that an agent of this model offers. `goes_on_from`: with which answers, by text."""
        return tuple(
            key
            for key in self._keys
            if key.model in (None, model)
            and abilities.issuperset(key.needs)
            and (isinstance(key, Able) or goes_on_from(key.origin))
        )

    def came(self, id: RequestId, key: Key) -> bool:
        """A request waits for `key`. Returns whether agents have others to offer now."""
        self.left(id)
        self._by_request[id] = key
        self._used.add(key, 1)
        if key in self._keys:
            return False
        self._keys[key] = None
        return True

    def left(self, id: RequestId) -> None:
        """A request is over, if it had a key."""
        if (key := self._by_request.pop(id, None)) is None:
            return
        self._used.add(key, -1)
        unused = [each for each in self._keys if each not in self._used]
        for each in unused[: max(0, len(unused) - MAX_UNUSED)]:
            del self._keys[each]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        used = set(self._by_request.values())
        if not used <= self._keys.keys() or len(self._keys) > len(used) + MAX_UNUSED:
            raise RuntimeError("keys of nobody, or requests without theirs")
