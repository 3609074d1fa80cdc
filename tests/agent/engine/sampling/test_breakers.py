from arriero.agent.engine.loaded_model import FillIn
from arriero.agent.engine.sampling.breakers import MAX_TAIL, BreakerFinder


class WordVocab:
    """Whole words for tokens; a text is read letter by letter, from the token 100 on."""

    end_tokens: frozenset[int] = frozenset()
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
