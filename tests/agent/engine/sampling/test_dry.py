"""Repeats found as tokens come, against looking at the whole window each time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.loaded_model import FillIn
from arriero.agent.engine.sampling.dry import MAX_TAIL, BreakerFinder, DryPenalty, repeats
from arriero.agent.engine.sampling.sampling import Breakers, Dry

SIZE = 8


def penalties(dry: Dry, tokens: list[int], num_prompt: int = 0) -> dict[int, float]:
    repetition = DryPenalty(dry, tokens[:num_prompt])
    for token in tokens[num_prompt:]:
        repetition.accept(token)
    row = np.zeros(SIZE, np.float32)
    repetition.apply(row)
    return {token: -float(row[token]) for token in range(SIZE) if row[token]}


def plainly(dry: Dry, tokens: list[int]) -> dict[int, float]:
    window = tokens[-dry.penalty_last_n :] if dry.penalty_last_n else []
    limit = unbroken(window, dry.breakers)
    found: dict[int, int] = {}
    for place in range(len(window) - 1):
        length = 0
        while (
            length <= place
            and length < limit
            and window[place - length] == window[len(window) - 1 - length]
        ):
            length += 1
        if length >= dry.allowed_length and len(window) > dry.allowed_length <= limit:
            token = window[place + 1]
            found[token] = max(found.get(token, 0), length)
    return {
        token: dry.multiplier * dry.base ** (length - dry.allowed_length)
        for token, length in found.items()
        if () not in dry.breakers.get(token, ())
    }


def unbroken(window: list[int], breakers: Breakers) -> int:
    """The last place that begins a whole breaker decides, and the longest one that begins there."""
    for place in reversed(range(len(window))):
        ends = [
            place + 1 + len(tail)
            for tail in breakers.get(window[place], ())
            if tuple(window[place + 1 : place + 1 + len(tail)]) == tail
        ]
        if ends:
            return len(window) - max(ends)
    return len(window)


TOKENS = st.lists(st.integers(0, 3), max_size=40)


@given(
    tokens=TOKENS,
    num_prompt=st.integers(0, 40),
    allowed_length=st.integers(0, 4),
    penalty_last_n=st.integers(0, 20),
    breakers=st.sampled_from(
        [{}, {3: ((),)}, {2: ((1,), (1, 0)), 3: ((3,),)}, {1: ((1, 1, 1), (2,)), 0: ((), (0, 0))}]
    ),
)
def test_repeats_are_those_of_the_whole_window(
    tokens: list[int], num_prompt: int, allowed_length: int, penalty_last_n: int, breakers: Breakers
) -> None:
    dry = Dry(
        multiplier=1.0,
        base=2.0,
        allowed_length=allowed_length,
        penalty_last_n=penalty_last_n,
        breakers=breakers,
    )
    assert penalties(dry, tokens, num_prompt) == plainly(dry, tokens)


def test_a_longer_repeat_costs_more() -> None:
    dry = Dry(multiplier=0.5, base=3.0, allowed_length=2)
    assert penalties(dry, [1, 2, 3, 4, 1]) == {}
    assert penalties(dry, [1, 2, 3, 4, 1, 2]) == {3: 0.5}
    assert penalties(dry, [1, 2, 3, 4, 1, 2, 3]) == {4: 1.5}


def test_a_breaker_ends_a_repeat_and_is_never_penalised() -> None:
    dry = Dry(multiplier=1.0, allowed_length=2, breakers={4: ((),)})
    assert penalties(dry, [1, 4, 2, 3, 1, 4, 2]) == {}
    assert penalties(dry, [1, 2, 4, 1, 2]) == {}


@pytest.mark.parametrize("base", [1.0, 1.75])
def test_no_repeat_is_too_long(base: float) -> None:
    dry = Dry(multiplier=1.0, base=base, penalty_last_n=1000)
    assert np.isfinite(penalties(dry, [1] * 1000)[1])


def test_setting_up_takes_no_longer_for_repeats() -> None:
    """Counted, not timed: a long prompt that repeats itself is looked at twice, not squared."""
    num_looks = 0

    class Watched(int):
        def __eq__(self, other: object) -> bool:
            nonlocal num_looks
            num_looks += 1
            return isinstance(other, int) and int(self) - int(other) == 0

        __hash__ = int.__hash__

    size = 2000
    for tokens in ([Watched(1)] * size, [Watched(n % 3) for n in range(size)]):
        period = len({*map(int, tokens)})
        expected = [n + 1 if (size - 1 - n) % period == 0 else 0 for n in range(size - 1)]
        num_looks = 0
        assert repeats([*tokens]) == expected
        assert num_looks <= 2 * size


def test_a_long_window_is_penalised_as_the_plain_look_says() -> None:
    dry = Dry(multiplier=1.0, base=1.0, allowed_length=0, penalty_last_n=2**31 - 1)
    tokens = [n * n % 5 for n in range(300)]
    assert penalties(dry, tokens, 250) == plainly(dry, tokens)


# ---- sequence breakers


class WordVocab:
    """Whole words for tokens; a text is read letter by letter, from the token 100 on."""

    end_tokens: frozenset[int] = frozenset()
    suppressed_tokens: frozenset[int] = frozenset()
    bos_text = eos_text = ""
    control_texts: tuple[str, ...] = ()
    fill_in: FillIn | None = None

    def __init__(self, *words: bytes) -> None:
        self._words = words
        self.size = len(words)
        self.num_named = 0

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return tuple(100 + byte for byte in text.encode())

    def piece(self, token: int) -> bytes:
        return self._words[token]

    def name(self, token: int) -> bytes:
        self.num_named += 1
        return self._words[token]


def letters(text: str) -> tuple[int, ...]:
    return tuple(100 + byte for byte in text.encode())


def test_a_token_that_holds_the_text_is_enough() -> None:
    vocab = WordVocab(b"a", b"b", b"ab", b"xaby", b"")
    assert BreakerFinder(vocab).find(("ab",)) == {2: ((),), 3: ((),), 0: (letters("b"),)}


def test_a_text_may_begin_at_the_end_of_a_token() -> None:
    vocab = WordVocab(b"one,", b", two", b",\n", b"\n")
    assert BreakerFinder(vocab).find((",\n",)) == {2: ((),), 0: (letters("\n"),)}


def test_a_token_can_begin_a_text_in_several_ways() -> None:
    found = BreakerFinder(WordVocab(b"xaa")).find(("aab",))
    assert found == {0: (letters("ab"), letters("b"))}


def test_several_texts_and_none() -> None:
    vocab = WordVocab(b"a", b"b", b"ab")
    assert BreakerFinder(vocab).find(("a", "b")) == {0: ((),), 2: ((),), 1: ((),)}
    assert BreakerFinder(vocab).find(()) == {}


def test_bytes_that_are_no_text_of_their_own_are_passed_over() -> None:
    vocab = WordVocab("é".encode()[:1], "é".encode(), b"x")
    assert BreakerFinder(vocab).find(("é",)) == {1: ((),)}


def test_a_tail_has_an_end() -> None:
    found = BreakerFinder(WordVocab(b"a")).find(("a" + "b" * 39,))
    assert found == {0: (letters("b" * MAX_TAIL),)}


def test_the_vocabulary_is_looked_through_once() -> None:
    vocab = WordVocab(b"a", b"b")
    finder = BreakerFinder(vocab)
    assert vocab.num_named == 0
    finder.find(("a",))
    finder.find(("a", "b"))
    assert vocab.num_named == 2
