"""Constrained decoding: a compiled grammar, and one sequence's state in it.

After each token a worker (`grammar_process`) computes the mask of the tokens that may come next.
Computing a mask takes microseconds, or milliseconds in bad cases. So a separate thread waits for
the mask while the next batch is decoded. A state advances only with chosen tokens; tokens that are
computed again after a preemption do not count again.
"""

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..sampling.selection import Ids, Row

NUM_AT_ONCE = 256
"""Tokens that a grammar reads at once, while other sequences with the grammar wait."""


class ConstraintError(Exception):
    """A sequence's tokens do not match the grammar, or the comparison takes too long."""


class BrokenError(ConstraintError):
    """The worker of a grammar has ended, or llguidance failed in the worker."""


@dataclass(frozen=True, slots=True)
class Mask:
    """The tokens that may come next: only `ids`, or with `is_exclusion` all but `ids`."""

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
        """Set `row` to minus infinity for all tokens that may not come next."""
        if self.is_exclusion:
            row[self.ids] = -np.inf
            return
        kept = row[self.ids]
        row.fill(-np.inf)
        row[self.ids] = kept


MAX_DIGITS = 32
"""Maximum consecutive digit tokens of a number in JSON; some models never end a number."""


class Numbers:
    """Limits the length of numbers in JSON, for a vocabulary with these `pieces`."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._is_digits = np.array([piece.isdigit() for piece in pieces])
        self._has_quote = np.array([piece.startswith(b'"') for piece in pieces])

    def in_a_row(self, token: int, num_digits: int) -> int:
        """Return the number of consecutive digit tokens after `token` follows `num_digits` of
        them.
        """
        return num_digits + 1 if self._is_digits[token] else 0

    def ended(self, mask: Mask) -> Mask:
        """Return `mask` without digits, except within a string or if only digits may follow."""
        if mask.is_exclusion or self._has_quote[mask.ids].any():
            return mask
        others = mask.ids[~self._is_digits[mask.ids]]
        return Mask(others, is_exclusion=False) if others.size else mask


class Submit(Protocol):
    """Runs a function on another thread; `Executor.submit` is one."""

    def __call__(self, work: Callable[[], Mask], /) -> "Future[Mask]": ...


class Worker(Protocol):
    """The interface of a grammar's worker, which identifies sequences by numbers.

    Once it `is_broken`, it cannot be used.
    """

    @property
    def is_broken(self) -> bool: ...

    def begin(self) -> int:
        """Return the number of a new sequence."""

    def follow(self, id: int, base: int, tokens: Sequence[int], num_before: int = 0) -> bytes:
        """Return the bits of the tokens that may come after `tokens`. Raises `ConstraintError`.

        A sequence with an unknown `id` begins at the state of the sequence `base`.
        """

    def end(self, id: int) -> None:
        """Forget a sequence, at some later time."""


class _Sequence:
    """A sequence of a worker, kept while this object exists."""

    def __init__(self, worker: Worker, base: "_Sequence | None" = None) -> None:
        self._worker = worker
        self._base = base
        self._id = worker.begin() if base else 0
        weakref.finalize(self, worker.end, self._id).atexit = False

    def follow(self, tokens: Sequence[int], num_before: int = 0) -> bytes:
        """Return the bits of the tokens that may come after `tokens`. Raises `ConstraintError`."""
        base = self._base._id if self._base else 0
        return self._worker.follow(self._id, base, tokens, num_before)


class Constraint:
    """A compiled grammar; any number of sequences share it.

    `first` are the bits of the tokens that may come first. `warnings` are the compiler's warnings
    about parts that it left out of the grammar. With `numbers`, numbers of JSON are limited in
    length; `num_digits` is the number of digit tokens at the end of the answer so far.
    """

    def __init__(
        self,
        worker: Worker,
        first: bytes,
        vocab_size: int,
        end_tokens: Sequence[int],
        *,
        base: _Sequence | None = None,
        warnings: Sequence[str] = (),
        numbers: Numbers | None = None,
        num_digits: int = 0,
    ) -> None:
        self._worker = worker
        self._base = base or _Sequence(worker)
        self._vocab_size = vocab_size
        self._end_tokens = tuple(end_tokens)
        self._first = mask_of(first, vocab_size)
        self.warnings = tuple(warnings)
        self._numbers = numbers
        self._num_digits = num_digits

    @property
    def is_broken(self) -> bool:
        """Return whether the grammar can no longer be used."""
        return self._worker.is_broken

    def after(self, tokens: Sequence[int]) -> "Constraint":
        """Return the constraint on the rest of an answer that begins with `tokens`.

        Raises `ConstraintError` if the grammar does not allow `tokens`. Each token takes time.
        """
        if not tokens:
            return self
        sequence = _Sequence(self._worker, self._base)
        for start in range(0, len(tokens), NUM_AT_ONCE):
            first = sequence.follow(tokens[start : start + NUM_AT_ONCE], start)
        numbers, num_digits = self._numbers, self._num_digits
        if numbers is not None:
            for token in tokens:
                num_digits = numbers.in_a_row(token, num_digits)
        return Constraint(
            self._worker,
            first,
            self._vocab_size,
            self._end_tokens,
            base=sequence,
            warnings=self.warnings,
            numbers=numbers,
            num_digits=num_digits,
        )

    def begin(self, submit: Submit) -> "GrammarState":
        """Return the state of a new sequence, at the beginning of the grammar."""
        end = Mask(np.array(self._end_tokens, np.intp), is_exclusion=False)
        sequence = _Sequence(self._worker, self._base)
        numbers, num_digits = self._numbers, self._num_digits

        def follow(token: int) -> Mask:
            nonlocal num_digits
            mask = mask_of(sequence.follow((token,)), self._vocab_size)
            if numbers is None:
                return mask
            num_digits = numbers.in_a_row(token, num_digits)
            return mask if num_digits < MAX_DIGITS else numbers.ended(mask)

        return GrammarState(follow, self._first, end, submit)


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
        """The lowest token that may come next; valid after `restrict`."""
        return self._mask.first

    def restrict(self, row: Row) -> None:
        """Set the logits of all tokens that may not come next to minus infinity."""
        try:
            self._mask = self._next.result()
        except ConstraintError as error:
            self.failure = str(error)
            self._mask = self._end
        self._mask.restrict(row)

    def accept(self, token: int) -> None:
        """Record that `token` was chosen; the next mask is computed in the background."""
        self._next = self._submit(partial(self._follow, token))


def mask_of(bits: bytes, vocab_size: int) -> Mask:
    """Return the mask with these `bits`. Raises `ConstraintError` if they allow nothing."""
    is_allowed = _unpacked(bits, vocab_size)
    num_allowed = int(np.count_nonzero(is_allowed))
    if not num_allowed:
        raise ConstraintError("no token is allowed next")
    if 2 * num_allowed > vocab_size:
        return Mask(np.flatnonzero(~is_allowed), is_exclusion=True)
    return Mask(np.flatnonzero(is_allowed), is_exclusion=False)


def _unpacked(bits: bytes, size: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bits, np.uint8)
    return np.unpackbits(packed, bitorder="little", count=size).view(np.bool_)
