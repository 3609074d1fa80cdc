"""The order in which prompts are read: first the one that processor sharing would finish first.

Processor sharing reads all prompts at the same pace. That is fair, but all finish late: eight equal
prompts finish when the eighth does. Read one after the other, in the order in which they would
finish under sharing, none finishes later than under sharing, most finish far earlier, and no prompt
waits for ever behind newcomers. That is the Fair Sojourn Protocol (E. J. Friedman, S. G. Henderson:
Fairness and efficiency in web server protocols, SIGMETRICS 2003).

Invariant: under sharing as many tokens are left to be read as there really are. So the simulated
sharing ends when everything is read.
"""

from collections.abc import Container, Mapping, Sequence

from ..sequence import SequenceId


def split_fairly(wants: Sequence[float], budget: float) -> list[float]:
    """Parts of `budget`, one for each want and at most as large as it.

    Max-min fairness: equal parts, and what a small want leaves over goes to the larger ones.
    """
    shares = [0.0] * len(wants)
    num_left = len(wants)
    for index in sorted(range(len(wants)), key=wants.__getitem__):
        shares[index] = min(wants[index], budget / num_left)
        budget -= shares[index]
        num_left -= 1
    return shares


_DIGITS = 6
"""Tokens left of prompts that differ by less are equal; the rest is rounding."""


class FairOrder:
    """Simulates processor sharing: what would be left of each prompt."""

    def __init__(self) -> None:
        self._ahead: dict[SequenceId, float] = {}
        """Tokens by which each is ahead of where it would be, negative where it is behind; of those
        that are through, as long as they would not be. In the order of being through."""

    def __len__(self) -> int:
        return len(self._ahead)

    def first(self, wants: Mapping[SequenceId, int]) -> SequenceId:
        """The prompt to read next; there must be one."""
        return next(id for id in self._left(wants) if id in wants)

    def share(
        self,
        wants: Mapping[SequenceId, int],
        budget: int,
        among: Container[SequenceId] | None = None,
    ) -> dict[SequenceId, int]:
        """Parts of `budget` for prompts with so many tokens to be read; only those that get any.

        `among` whom it is shared now, if not all can be read together.
        """
        if not wants and not self._ahead:
            return {}
        left = self._left(wants)
        readable = wants if among is None else among
        shares = _in_turn([id for id in left if id in wants and id in readable], wants, budget)
        num_left = sum(wants.values()) - sum(shares.values())
        dues = split_fairly([*left.values()], max(0.0, sum(left.values()) - num_left))
        self._ahead = {
            id: round(left[id] - due, _DIGITS) - wants.get(id, 0) + shares.get(id, 0)
            for id, due in zip(left, dues, strict=True)
        }
        self._forget_those_through(wants)
        return shares

    def check_integrity(self) -> None:
        """Raise `RuntimeError` unless as much is ahead as behind, which is the invariant."""
        if abs(total := sum(self._ahead.values())) > len(self._ahead) * 10**-_DIGITS:
            raise RuntimeError(f"fair order out of order: {total} tokens ahead on the whole")

    def _left(self, wants: Mapping[SequenceId, int]) -> dict[SequenceId, float]:
        """What would be left of each at one pace, in the order in which they would be through."""
        left = {id: max(0.0, wants.get(id, 0) + ahead) for id, ahead in self._ahead.items()}
        left |= {id: want for id, want in wants.items() if id not in left}
        # Sorting keeps the order of those that would be through already.
        return {id: left[id] for id in sorted(left, key=left.__getitem__)}

    def _forget_those_through(self, wants: Mapping[SequenceId, int]) -> None:
        for id in [id for id, ahead in self._ahead.items() if id not in wants and not ahead]:
            del self._ahead[id]


def _in_turn(
    order: list[SequenceId], wants: Mapping[SequenceId, int], budget: int
) -> dict[SequenceId, int]:
    shares = {}
    for id in order:
        if not budget:
            break
        shares[id] = min(wants[id], budget)
        budget -= shares[id]
    return shares
