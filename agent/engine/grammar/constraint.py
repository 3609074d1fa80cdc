"""Constrained decoding: a compiled grammar, and one sequence's state in it.

llguidance computes after each token the mask of those that may come next. That takes microseconds,
in bad cases milliseconds, so it runs on a thread of its own between one choice and the next, while
the batch is decoded. A state advances only with chosen tokens; tokens that are computed again
after a preemption do not count again.

llguidance is written in Rust. Its panics arrive as an exception that `except Exception` does not
catch. A panic ends the answer, not the engine, and that grammar is refused from then on.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from ..sampling.selection import Ids, Row

NUM_TRIED = 3
"""Tokens that are tried before a grammar is taken."""

NUM_AT_ONCE = 256
"""Tokens that a grammar takes at once: a millisecond, for which no other thread runs Python."""


class ConstraintError(Exception):
    """A grammar and a sequence's tokens no longer fit together, or take too long to compare."""


class PanicError(ConstraintError):
    """llguidance panicked."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Which tokens may come next: only `ids`, or with `is_exclusion` all but `ids`."""

    ids: Ids
    is_exclusion: bool

    @property
    def first(self) -> int:
        """The lowest token that may come next."""
        if not self.is_exclusion:
            return int(self.ids[0])
        gaps = np.flatnonzero(self.ids != np.arange(self.ids.size))
        return int(gaps[0]) if gaps.size else self.ids.size

    def restrict(self, row: Row) -> None:
        """Rule out all other tokens."""
        if self.is_exclusion:
            row[self.ids] = -np.inf
            return
        kept = row[self.ids]
        row.fill(-np.inf)
        row[self.ids] = kept


MAX_DIGITS = 32
"""Tokens of digits that a number in JSON has in a row at most; some models never end one."""


class Numbers:
    """Ends the numbers of JSON, for one vocabulary."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._is_digits = _begin(tokenizer, "/[0-9]+/")
        self._has_quote = _begin(tokenizer, r'/"(.|\n)*/')

    def in_a_row(self, token: int, num_digits: int) -> int:
        """How many tokens of digits there are in a row after `token` follows `num_digits`."""
        return num_digits + 1 if self._is_digits[token] else 0

    def ended(self, mask: Mask) -> Mask:
        """`mask` without digits, unless it is one of a string or nothing else may follow."""
        if mask.is_exclusion or self._has_quote[mask.ids].any():
            return mask
        others = mask.ids[~self._is_digits[mask.ids]]
        return Mask(others, is_exclusion=False) if others.size else mask


class Submit(Protocol):
    """Runs a function on another thread; `Executor.submit` is one."""

    def __call__(self, work: Callable[[], Mask], /) -> "Future[Mask]": ...


class Constraint:
    """A compiled grammar; any number of sequences share it.

    `matcher` is at the beginning and stays there; `warnings` are the compiler's, of what it did not
    make part of the grammar. With `numbers`, numbers of JSON come to an end; `num_digits` are the
    tokens of digits that the answer ends with already. Once it `is_broken` it cannot be used.
    Raises `ConstraintError` if already the first few tokens fail, as too much work for example.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        vocab_size: int,
        end_tokens: Sequence[int],
        *,
        warnings: Sequence[str] = (),
        numbers: Numbers | None = None,
        num_digits: int = 0,
    ) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._end = Mask(np.array(end_tokens, np.intp), is_exclusion=False)
        self.is_broken = False
        self.warnings = tuple(warnings)
        self._numbers = numbers
        self._num_digits = num_digits
        with panics_raised():
            self._first = next_mask(matcher, vocab_size)
            self._try()

    def after(self, tokens: Sequence[int]) -> "Constraint":
        """The rest of the grammar once `tokens` were said.

        Raises `ConstraintError` if they are no beginning of what it allows. Takes time with each.
        """
        with panics_raised():
            matcher = self.matcher()
            for start in range(0, len(tokens), NUM_AT_ONCE):
                some = [*tokens[start : start + NUM_AT_ONCE]]
                num_taken = matcher.try_consume_tokens(some)
                check(matcher)
                if num_taken < len(some):
                    number = start + num_taken + 1
                    raise ConstraintError(
                        f"the grammar does not allow token {number} of the answer"
                    )
        numbers, num_digits = self._numbers, self._num_digits
        if numbers is not None:
            for token in tokens:
                num_digits = numbers.in_a_row(token, num_digits)
        return Constraint(
            matcher,
            self._vocab_size,
            self._end.ids.tolist(),
            warnings=self.warnings,
            numbers=numbers,
            num_digits=num_digits,
        )

    def begin(self, submit: Submit) -> "GrammarState":
        """The state of a new sequence, at the beginning."""
        return GrammarState(self._walk(), self._first, self._end, submit)

    def matcher(self) -> LLMatcher:
        """llguidance's matcher, at the beginning."""
        return self._matcher.deep_copy()

    def _walk(self) -> Callable[[int], Mask]:
        """Takes token after token, and says what may follow. Raises `ConstraintError`."""
        matcher: LLMatcher | None = None
        numbers, num_digits = self._numbers, self._num_digits

        def follow(token: int) -> Mask:
            nonlocal matcher, num_digits
            try:
                with panics_raised():
                    matcher = matcher or self.matcher()
                    matcher.consume_token(token)
                    mask = next_mask(matcher, self._vocab_size)
            except PanicError:
                self.is_broken = True
                raise
            if numbers is None:
                return mask
            num_digits = numbers.in_a_row(token, num_digits)
            return mask if num_digits < MAX_DIGITS else numbers.ended(mask)

        return follow

    def _try(self) -> None:
        """Some grammars compile and are too much work from the second token on."""
        matcher, mask = self.matcher(), self._first
        for _ in range(NUM_TRIED):
            matcher.consume_token(mask.first)
            check(matcher)
            if matcher.is_stopped():
                break
            mask = next_mask(matcher, self._vocab_size)


class GrammarState:
    """One sequence's state: call `restrict` and `accept` in turn, on one thread.

    After a failure only an end token may follow, and `failure` says why.
    """

    def __init__(
        self,
        follow: Callable[[int], Mask],
        first: Mask,
        end: Mask,
        submit: Submit,
    ) -> None:
        self._follow = follow
        self._end = end
        self._submit = submit
        self._next: Future[Mask] = Future()
        self._next.set_result(first)
        self._mask = first
        self.failure: str | None = None

    @property
    def first(self) -> int:
        """The lowest token that may come next; ask after `restrict`."""
        return self._mask.first

    def restrict(self, row: Row) -> None:
        """Mask all tokens but those that may come next."""
        try:
            self._mask = self._next.result()
        except ConstraintError as error:
            self.failure = str(error)
            self._mask = self._end
        self._mask.restrict(row)

    def accept(self, token: int) -> None:
        """`token` was chosen; the next mask is computed in the background."""
        self._next = self._submit(partial(self._follow, token))


def next_mask(matcher: LLMatcher, vocab_size: int) -> Mask:
    """The mask of what may come next. Raises `ConstraintError`."""
    bits = matcher.compute_bitmask()
    check(matcher)
    is_allowed = _unpacked(bits, vocab_size)
    num_allowed = int(np.count_nonzero(is_allowed))
    if not num_allowed:
        raise ConstraintError("no token is allowed next")
    if 2 * num_allowed > vocab_size:
        return Mask(np.flatnonzero(~is_allowed), is_exclusion=True)
    return Mask(np.flatnonzero(is_allowed), is_exclusion=False)


@contextmanager
def panics_raised() -> Iterator[None]:
    """Raises `PanicError` where llguidance panics."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise PanicError(f"llguidance failed: {error}") from error


def check(matcher: LLMatcher) -> None:
    """Raises `ConstraintError` where `matcher` cannot go on."""
    if not matcher.is_error():
        return
    reason = matcher.get_error().removesuffix("<non-verbose/>").strip()
    if reason.startswith("NoExtension"):
        reason = "no text matches it"
    raise ConstraintError(reason)


def _begin(tokenizer: LLTokenizer, pattern: str) -> NDArray[np.bool_]:
    """Whether a token is a beginning of what `pattern` matches, for each token."""
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_lark(f"start: {pattern}"))
    return _unpacked(matcher.compute_bitmask(), tokenizer.vocab_size)


def _unpacked(bits: bytes, size: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bits, np.uint8)
    return np.unpackbits(packed, bitorder="little", count=size).view(np.bool_)
