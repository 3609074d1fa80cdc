"""Removes from an answer's items the part that another agent already delivered to the client.

The items of an answer have one order, however its tokens were grouped into steps. So the delivered
part is a prefix, and the delivered counts say how long the prefix is.
"""

from dataclasses import dataclass, replace

from ....shared.continuation import Continuation
from ....shared.messages import Called, CallStarted, Item, Noticed, Piece


class MiscountError(Exception):
    """The delivered counts do not match any prefix of the answer."""


@dataclass(slots=True, kw_only=True)
class Delivered:
    """Counts of delivered items that have not been produced again yet."""

    tokens: int = 0
    characters: int = 0
    log_probs: int = 0
    calls_started: int = 0
    calls: int = 0
    prompt_characters: int = 0
    prompt_log_probs: int = 0

    @classmethod
    def of(cls, continuation: Continuation, num_tokens: int) -> "Delivered":
        """Return the counts of `continuation`, for an answer that has `num_tokens` so far.

        An echoed prompt precedes the answer, so no part of the prompt is repeated after the first
        token.
        """
        has_begun = num_tokens > 0
        return cls(
            tokens=num_tokens,
            characters=continuation.num_characters,
            log_probs=continuation.num_log_probs,
            calls_started=continuation.num_calls_started,
            calls=continuation.num_calls,
            prompt_characters=0 if has_begun else continuation.num_prompt_characters,
            prompt_log_probs=0 if has_begun else continuation.num_prompt_log_probs,
        )

    @property
    def is_past(self) -> bool:
        """Return whether all delivered items were produced again."""
        return self.is_answer_past and not (self.prompt_characters or self.prompt_log_probs)

    @property
    def is_answer_past(self) -> bool:
        """Return whether all delivered items except an echoed prompt were produced again."""
        return not (self.tokens or self._is_within or self.log_probs)

    def beyond(self, items: list[Item]) -> list[Item]:
        """Return the new part of `items`.

        Raises `MiscountError` if the counts contradict the items.
        """
        if self.is_past:
            return items
        return [new for item in items if (new := self._new(item)) is not None]

    @property
    def _is_within(self) -> bool:
        return bool(self.characters or self.calls_started or self.calls)

    def _new(self, item: Item) -> Item | None:
        match item:
            case Piece(kind="prompt"):
                return self._rest_of_prompt(item)
            case Piece():
                return self._rest(item)
            case CallStarted():
                self.calls_started, is_new = self._counted(self.calls_started)
            case Called():
                self.calls, is_new = self._counted(self.calls)
            case Noticed():
                # After the last item that counts only the balancer knows it.
                is_new = not self._is_within
            case _:
                is_new = True
        return item if is_new else None

    def _counted(self, count: int) -> tuple[int, bool]:
        """Return `count` after one more item of its kind, and whether that item is new."""
        if count:
            return count - 1, False
        if self._is_within:
            raise MiscountError("what was delivered is no beginning of the answer")
        return 0, True

    def _rest(self, piece: Piece) -> Piece | None:
        num_tokens = min(self.tokens, len(piece.tokens))
        num_characters = min(self.characters, len(piece.text))
        log_probs = piece.log_probs or ()
        num_log_probs = min(self.log_probs, len(log_probs))
        self.tokens -= num_tokens
        self.characters -= num_characters
        self.log_probs -= num_log_probs
        if num_characters < len(piece.text) and self._is_within:
            raise MiscountError("what was delivered is no beginning of the answer")
        rest = replace(
            piece,
            text=piece.text[num_characters:],
            tokens=piece.tokens[num_tokens:],
            log_probs=log_probs[num_log_probs:] or None,
        )
        return rest if rest.text or rest.tokens or rest.log_probs else None

    def _rest_of_prompt(self, piece: Piece) -> Piece | None:
        log_probs = piece.log_probs or ()
        num_characters = min(self.prompt_characters, len(piece.text))
        num_log_probs = min(self.prompt_log_probs, len(log_probs))
        self.prompt_characters -= num_characters
        self.prompt_log_probs -= num_log_probs
        rest = replace(
            piece, text=piece.text[num_characters:], log_probs=log_probs[num_log_probs:] or None
        )
        return rest if rest.text or rest.log_probs else None
