"""Prompt lookup (n-gram) drafting: proposes the tokens that followed an earlier occurrence.

No model is needed. The drafter follows a position in the sequence's own text while the new tokens
equal the tokens there. When they differ, the last few tokens are looked up among all earlier
tokens, and the latest occurrence counts.

The cost of a token does not depend on the length of the text. Positions are in a hash table of
fixed size. If two n-grams collide, one loses its position, and comparing tokens shows whether a
position is right.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence

from ..sequence import SequenceId
from .draft_worth import DraftAllowance, learnt_rate
from .drafter import DraftRequest, Proposal, StepPrices

LENGTHS = (3, 2)
"""Numbers of last tokens that are looked up, the largest number first."""

LONGEST = 16
"""Maximum length to which matches are measured."""

PIECE = 1024
"""Maximum tokens entered into the table per new token, so that long prompts stall no stream."""

_NOWHERE = 0  # no n-gram ends there
_NUM_KEPT = 2  # of what may be running, in entries of the table a token


class PromptLookup:
    """A text of about `most` tokens at most; the oldest tokens of a longer text are forgotten.

    `match_length` is the number of last tokens that also precede the draft, up to `LONGEST`; 0
    means that there is no draft.
    """

    __slots__ = ("_most", "_num_entered", "_place", "_table", "_tokens", "match_length")

    def __init__(self, tokens: Sequence[int], most: int) -> None:
        self._most = most
        self._place = _NOWHERE
        self.match_length = 0
        self._begin(tokens)

    def push(self, token: int) -> bool:
        """Append `token`; return whether a draft would have begun with it."""
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
        """Return the next `count` tokens if the text repeats itself; none without a match.

        If the match reaches the end of the text, the draft itself is repeated.
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
        """Enter the n-grams that end before tokens which are not in the table yet."""
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
        """Return how many tokens before `place` equal the last tokens; at least `length` do."""
        tokens = self._tokens
        while length < min(place, LONGEST) and tokens[place - length - 1] == tokens[-length - 1]:
            length += 1
        return length


class Acceptance:
    """The acceptance rate of drafts by length of the match before them, learnt from every token.

    A prediction can be compared with the next token without computing a draft. So learning costs
    nothing, and happens before the first draft is paid for. Two matching tokens say little, ten
    say nearly all, and the exact rates depend on the model and its task. Before any observation, a
    match of n tokens counts as right after n successes and one failure.
    """

    def __init__(self) -> None:
        self._rates = [
            learnt_rate(1 - 1 / max(1, length), weight=1.0) for length in range(LONGEST + 1)
        ]

    def observe(self, match_length: int, *, is_right: bool) -> None:
        """Learn whether the predicted token followed a match of `match_length` tokens."""
        self._rates[match_length].observe(is_right)

    def chances(self, match_length: int, count: int) -> list[float]:
        """Return the chance, for each of `count` drafted tokens, that all up to it are right."""
        chances = []
        chance = 1.0
        for length in range(match_length, match_length + count):
            chance *= self._rates[min(length, LONGEST)].value
            chances.append(chance)
        return chances


class LookupDrafter:
    """Follows sequences of about `longest` tokens; the oldest tokens of longer ones are forgotten.

    The drafter follows a sequence from its first request on, and learns from every token how often
    a match of a given length is right. The losses of its proposals are bounded: until they are
    earned again, the drafter follows sequences and proposes nothing.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._lookups: dict[SequenceId, PromptLookup] = {}
        self._acceptance = Acceptance()
        self._allowance = DraftAllowance()

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """Return the tokens that followed an earlier occurrence of the last tokens."""
        self._allowance.renew(prices.step)
        found = [(request, self._lookup(request)) for request in requests]
        if self._allowance.is_spent:
            return {}
        return {
            request.id: self._proposal(lookup, request.most)
            for request, lookup in found
            if lookup.match_length
        }

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """Note that tokens of the last proposal for `id` were computed; called before `observe`."""
        self._allowance.add(saved - cost)

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """Note that a sequence gained `tokens`, drafted or not. Unknown ids are ignored."""
        lookup = self._lookups.get(id)
        if lookup is None:
            return
        for token in tokens:
            match_length = lookup.match_length
            is_right = lookup.push(token)
            if match_length:
                self._acceptance.observe(match_length, is_right=is_right)

    def forget(self, id: SequenceId) -> None:
        """Forget a sequence. Unknown ids are ignored."""
        self._lookups.pop(id, None)

    def _lookup(self, request: DraftRequest) -> PromptLookup:
        lookup = self._lookups.get(request.id)
        if lookup is None:
            lookup = self._lookups[request.id] = PromptLookup(request.history.tokens, self._longest)
        return lookup

    def _proposal(self, lookup: PromptLookup, most: int) -> Proposal:
        tokens = lookup.draft(most)
        return Proposal(tokens, tuple(self._acceptance.chances(lookup.match_length, len(tokens))))
