"""Texts that are cut before they are tokenised, and those whose splitter needs much stack."""

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.agent.engine.llama.splitting import (
    HAND_WRITTEN,
    LEAST_CUT,
    LEAST_LINES,
    MOST_FOUND,
    WINDOW,
    SpecialTexts,
    Splitter,
)
from arriero.agent.engine.llama.vocab import LlamaVocab, grammar_tokens
from arriero.agent.engine.withdrawal import Withdrawn, while_wanted
from arriero.shared.errors import InvalidRequest
from tests.agent.engine.llama.vocabularies import CONTROLS, vocabulary, without_bytes

_NAMES = """
afmoe bailingmoe bloom deepseek-coder deepseek-llm deepseek-v3 default exaone-moe falcon gpt-4o
granite-embed-multi-97m jais-2 minicpm5 seed-coder spark2_5 superbpe tekken tiny_aya ufakzeka viking
whitespace youtu
"""
RECURSIVE = _NAMES.split()
"""The other splitters of llama.cpp, each by one of its names."""

KINDS = {
    "letters": "abcdefghij",
    "capitals": "ABCDEFGHIJ",
    "other letters": "привет",
    "Chinese": "漢字仮名",
    "Korean": "한글",
    "Thai": "ภาษา",
    "combining": "e\u0301",
    "marks": "\u0301\u0302",
    "digits": "1234567890",
    "signs": "!?.,;:-+",
    "symbols": "$+<=>^|~",
    "emoji": "🦙😀",
    "unassigned": "\u0378",
    "control": "\x01\x02",
    "spaces": " ",
    "tabs": "\t",
    "no-break spaces": "\u00a0",
    "line ends": "\n",
    "ends of blank lines": " \n",
    "Windows' line ends": "\r\n",
    "letters and spaces": "a b c ",
    "contractions": "'s",
}

ORDINARY = 25
"""Examples of a run that is no search."""

STACK = 512 * 1024
"""Bytes of the smallest stack that threads have anywhere: on macOS."""


def whole(vocab: LlamaVocab, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
    """The tokens of a text that is not cut, by a thread with a large stack."""
    data = text.encode("utf-8", "replace")
    room = 4 * len(data) + 16
    tokens = (ctypes.c_int32 * room)()
    count = 0

    def tokenize() -> None:
        nonlocal count
        count = llama_cpp.llama_tokenize(
            vocab.handle, data, len(data), tokens, room, add_special, parse_special
        )

    on_thread(64 * 2**20, tokenize)
    return tokens[:count]


def on_thread(stack: int, work: object) -> None:
    before = threading.stack_size(stack)
    try:
        thread = threading.Thread(target=work)  # type: ignore[arg-type]
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()


# ---- the same tokens

WORDS = ("foo", "bar baz", "{", "}", "x\n", "é\n", "\n\n", "\tx", "漢", "123", "'s", " ")
SNIPPETS = st.sampled_from((*KINDS.values(), *CONTROLS, "<think>", "<|", "|>", "\ud800", *WORDS))


RUNS = st.tuples(SNIPPETS, st.sampled_from((1, 2, 7, 300, 3000)))


@st.composite
def nasty(draw: st.DrawFn) -> str:
    """Runs of all kinds and lengths, control tokens in whole and in part, lines of prose."""
    text = "".join(snippet * times for snippet, times in draw(st.lists(RUNS, max_size=30)))
    if draw(st.booleans()):
        few = draw(st.lists(SNIPPETS, min_size=1, max_size=4))
        text += "".join(draw(st.permutations(few))) * draw(st.sampled_from((1, 50, 2000)))
    return text


NUM_EXAMPLES = settings.default.max_examples
if NUM_EXAMPLES > ORDINARY:
    NUM_EXAMPLES *= 8  # a search is for all splitters


@settings(max_examples=NUM_EXAMPLES)
@given(
    splitter=st.sampled_from((*RECURSIVE, *sorted(HAND_WRITTEN))),
    text=nasty(),
    add_special=st.booleans(),
    parse_special=st.booleans(),
)
def test_the_tokens_are_those_of_the_whole(
    splitter: str, text: str, add_special: bool, parse_special: bool
) -> None:
    vocab = vocabulary(splitter)
    cut = vocab.tokenize(text, add_special=add_special, parse_special=parse_special)
    assert [*cut] == whole(vocab, text, add_special=add_special, parse_special=parse_special)


# ---- the stack


@pytest.mark.parametrize("splitter", RECURSIVE)
def test_no_text_overflows_a_stack(splitter: str) -> None:
    vocab = vocabulary(splitter)
    texts = [(kind * 4_000)[:4_000] for kind in KINDS.values()]
    on_thread(
        STACK,
        lambda: [vocab.tokenize(each, add_special=False, parse_special=False) for each in texts],
    )


@pytest.mark.parametrize("splitter", sorted(HAND_WRITTEN))
def test_those_written_by_hand_need_none(splitter: str) -> None:
    vocab = vocabulary(splitter)
    assert not vocab.splitter.is_recursive
    texts = [(kind * 4_000)[:4_000] for kind in KINDS.values()]
    on_thread(
        STACK,
        lambda: [vocab.tokenize(each, add_special=False, parse_special=False) for each in texts],
    )


def test_the_longest_stretch() -> None:
    text = "\n" + "a" * (2 * WINDOW - 2) + "\n"
    tokens = vocabulary("gpt-4o").tokenize(text, add_special=False, parse_special=False)
    assert len(tokens) > WINDOW / 2


@pytest.mark.parametrize("kind", [*KINDS.values()][:-2])
def test_a_longer_one_is_refused(kind: str) -> None:
    text = (kind * 2 * WINDOW)[: 2 * WINDOW]
    for splitter in ("gpt-4o", "exaone-moe"):
        with pytest.raises(InvalidRequest, match="in a row without a break"):
            Splitter(splitter).check(text)
    Splitter("qwen2").check(text)
    Splitter(None).check(text)


def test_a_grammar_with_such_a_literal_has_no_tokens_for_it() -> None:
    tokens = grammar_tokens(vocabulary("gpt-4o"))
    assert tokens is not None
    assert len(tokens.tokenize("ab" * 9)) == 18
    assert tokens.tokenize("ab" * WINDOW) == ()


def test_for_some_splitters_more_is_one_stretch() -> None:
    for splitter, text in (("exaone-moe", "a b c "), ("viking", "a1"), ("whitespace", "it's,")):
        Splitter("gpt-4o").check(text * WINDOW)
        with pytest.raises(InvalidRequest, match="in a row without a break"):
            Splitter(splitter).check(text * WINDOW)


@pytest.mark.parametrize(
    "part", ['{"a":[1,2,{"b":"c"}]},', "a slot ", "漢字\uff0c", "- x\n", "it's", "aGVsbG8="]
)
def test_other_long_texts_are_not(part: str) -> None:
    for splitter in ("gpt-4o", "deepseek-v3", "tekken", "deepseek-llm", "superbpe"):
        Splitter(splitter).check(part * WINDOW)


@pytest.mark.parametrize(("splitter", "kind"), [("deepseek-llm", " "), ("superbpe", "7")])
def test_stretches_that_take_too_much_time_are_refused(splitter: str, kind: str) -> None:
    Splitter(splitter).check((kind * 9_000 + "x") + (kind * 30 + "x") * 10_000)
    with pytest.raises(InvalidRequest, match="square of their length"):
        Splitter(splitter).check((kind * 5_000 + "x") * 5)


def test_a_character_without_a_token_is_refused(tmp_path: Path) -> None:
    """llama.cpp ends the process for it."""
    vocab = without_bytes(tmp_path)
    assert len(vocab.tokenize("ab cd<s>", add_special=False, parse_special=True)) >= 6
    for text in ("é", "abx", "a\n", "<s>"):
        with pytest.raises(InvalidRequest, match="for which this model has no token"):
            vocab.tokenize(text, add_special=False, parse_special=False)


# ---- the cuts


def parts(data: bytes, *specials: bytes, strips: bool = False) -> Iterator[bytes]:
    return SpecialTexts(specials, strips=strips).parts(data, ends_at_lines=False)


def test_each_part_has_few_special_tokens() -> None:
    data = b"<|im_start|>a" * 5_000
    found = [*parts(data, b"<|im_start|>", b"<|im_end|>")]
    assert b"".join(found) == data
    assert max(part.count(b"<|im_start|>") for part in found) == MOST_FOUND
    assert all(part.startswith(b"<|im_start|>") for part in found)


@pytest.mark.parametrize(
    ("text", "specials"),
    [
        (b"a" * LEAST_CUT * 2, (b"<s>",)),
        (b"<s" * LEAST_CUT, (b"<s>",)),
        (b"<s>" + b"a" * LEAST_CUT, (b"<s>",)),
        (b"aba" * LEAST_CUT, (b"ab", b"ba")),
        (b"", (b"<s>",)),
        (b"a" * LEAST_CUT * 2, ()),
    ],
)
def test_texts_that_are_not_cut(text: bytes, specials: tuple[bytes, ...]) -> None:
    assert [*parts(text, *specials)] == [text]


def test_white_space_that_a_token_swallows_stays_beside_it() -> None:
    assert [*parts(b"<s> " * LEAST_CUT, b"<s>", strips=True)] == [b"<s> " * LEAST_CUT]
    assert len([*parts(b"<s> a" * LEAST_CUT, b"<s>", strips=True)]) > 1
    assert len([*parts(b"<s> " * LEAST_CUT, b"<s>")]) > 1


def test_long_texts_are_cut_between_lines() -> None:
    lines = SpecialTexts((b"<s>",), strips=False)
    data = b"a line of prose\n" * LEAST_LINES
    found = [*lines.parts(data, ends_at_lines=True)]
    assert b"".join(found) == data
    assert max(map(len, found)) < LEAST_LINES + 99
    assert all(part.endswith(b"prose\n") for part in found)
    assert [*lines.parts(data, ends_at_lines=False)] == [data]
    over = SpecialTexts((b"x\ny",), strips=False)
    assert [*over.parts(data, ends_at_lines=True)] == [data]


def test_what_nobody_waits_for_is_given_up_between_parts() -> None:
    vocab = vocabulary("qwen2")
    answers = iter([True] * 9)
    with while_wanted(lambda: next(answers, False)), pytest.raises(Withdrawn):
        vocab.tokenize("<|im_start|>a" * 5_000, add_special=True, parse_special=True)
