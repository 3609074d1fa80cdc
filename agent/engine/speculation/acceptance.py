"""The acceptance rate of drafts by length of the match before them, learnt from every token.

Whether the token that followed before follows again can be seen without computing a draft. So this
costs nothing, and is known before the first draft is paid for: two tokens that match say little,
ten say nearly all, and how much that is depends on the model and on what it is asked for.
"""

from .prompt_lookup import LONGEST

FORGETTING = 0.98
"""What an observation still counts when the next one of its kind comes."""


class Acceptance:
    """Until something was observed, a match of n tokens counts as right after n, wrong once."""

    def __init__(self) -> None:
        self._right = [1 - 1 / max(1, length) for length in range(LONGEST + 1)]
        self._all = [1.0] * (LONGEST + 1)

    def observe(self, match_length: int, *, is_right: bool) -> None:
        """After a match of so many tokens, what had followed followed again, or did not."""
        self._right[match_length] = FORGETTING * self._right[match_length] + is_right
        self._all[match_length] = FORGETTING * self._all[match_length] + 1

    def chances(self, match_length: int, count: int) -> list[float]:
        """For each of `count` drafted tokens, that it is right and all before it are."""
        chances = []
        chance = 1.0
        for length in range(match_length, match_length + count):
            within = min(length, LONGEST)
            chance *= self._right[within] / self._all[within]
            chances.append(chance)
        return chances
