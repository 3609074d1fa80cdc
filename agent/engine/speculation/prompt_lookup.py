"""Prompt lookup (n-gram) drafting: drafts what followed when the last tokens occurred before.

A place is followed for as long as the text goes on there as it does here. When it does not, the
last few tokens are looked up among all before them, and the latest place counts.

A token costs the same however long the text is. Places are kept in a table of fixed size by hash:
two n-grams that meet in it cost one of them its place, and tokens tell whether a place is right.
"""

from array import array
from collections.abc import Sequence

LENGTHS = (3, 2)
"""How many of the last tokens are looked up: first the more telling ones."""

LONGEST = 16
"""Matches are measured no further."""

PIECE = 1024
"""Most tokens whose places are entered for one new token, so that long prompts stall nobody."""

_NOWHERE = 0  # no n-gram ends there
_NUM_KEPT = 2  # of what may be running, in entries of the table a token


class PromptLookup:
    """A text of at most about `most` tokens; of a longer one the oldest are forgotten.

    `match_length` says how many of the last tokens stand before the draft too, up to `LONGEST`; 0:
    there is no draft.
    """

    __slots__ = ("_most", "_num_entered", "_place", "_table", "_tokens", "match_length")

    def __init__(self, tokens: Sequence[int], most: int) -> None:
        self._most = most
        self._place = _NOWHERE
        self.match_length = 0
        self._begin(tokens)

    def push(self, token: int) -> bool:
        """The text goes on with `token`. Whether a draft would have begun with it."""
        tokens = self._tokens
        is_expected = self._place != _NOWHERE and tokens[self._place] == token
        tokens.append(token)
        self._enter_places()
        if is_expected:
            self._place += 1
            self.match_length = min(self.match_length + 1, LONGEST)
        else:
            self._look_up()
        if len(tokens) >= 2 * self._most:
            self._begin(tokens[-self._most :])
        return is_expected

    def draft(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens if it goes on as it did before; none where there is no match.

        What reaches the end of the text goes on with the draft itself, as a repetition does.
        """
        if self._place == _NOWHERE:
            return ()
        period = len(self._tokens) - self._place
        return tuple(self._tokens[self._place + index % period] for index in range(count))

    def _begin(self, tokens: Sequence[int]) -> None:
        self._tokens = list(tokens)
        self._table = array("i", [_NOWHERE]) * (1 << (_NUM_KEPT * self._most).bit_length())
        self._num_entered = 0
        self._enter_places()
        self._look_up()

    def _enter_places(self) -> None:
        """Enter, for the tokens that are new in the table, the n-grams that end before them."""
        tokens, table = self._tokens, self._table
        mask = len(table) - 1
        start = self._num_entered
        end = self._num_entered = min(len(tokens), start + PIECE)
        for place in range(start, end):
            for length in LENGTHS:
                if length <= place:
                    table[hash(tuple(tokens[place - length : place])) & mask] = place

    def _look_up(self) -> None:
        tokens, table = self._tokens, self._table
        mask = len(table) - 1
        for length in LENGTHS:
            last = tokens[-length:]
            place = table[hash(tuple(last)) & mask]
            if place != _NOWHERE and tokens[place - length : place] == last:
                self._place = place
                self.match_length = self._measure(place, length)
                return
        self._place, self.match_length = _NOWHERE, 0

    def _measure(self, place: int, length: int) -> int:
        """How many tokens before `place` are the last ones, of which `length` are known to be."""
        tokens = self._tokens
        while length < min(place, LONGEST) and tokens[place - length - 1] == tokens[-length - 1]:
            length += 1
        return length
