"""The demo model's vocabulary."""

import pytest

from arriero.agent.chat.output.detokenizer import Detokenizer
from arriero.agent.engine.llama.vocab import LlamaVocab


@pytest.mark.parametrize(
    "text",
    ["What is a slot?", "  two  spaces\n\ttab", "naïve €5 🦙", "a\x00b", "x" * 10_000],
)
def test_there_and_back(vocab: LlamaVocab, text: str) -> None:
    tokens = vocab.tokenize(text, add_special=False, parse_special=False)
    assert Detokenizer(vocab.piece).push(tokens) == text


def test_no_text_no_tokens(vocab: LlamaVocab) -> None:
    assert vocab.tokenize("", add_special=False, parse_special=False) == ()


def test_control_tokens_are_parsed_only_when_asked(vocab: LlamaVocab) -> None:
    parsed = vocab.tokenize("<|im_end|>", add_special=False, parse_special=True)
    plain = vocab.tokenize("<|im_end|>", add_special=False, parse_special=False)
    assert len(parsed) == 1
    assert parsed[0] in vocab.end_tokens
    assert len(plain) > 1
    assert not vocab.end_tokens & set(plain)


def test_control_tokens_stand_for_no_text(vocab: LlamaVocab) -> None:
    assert {vocab.piece(token) for token in vocab.end_tokens} == {b""}


def test_what_chat_templates_write(vocab: LlamaVocab) -> None:
    assert vocab.eos_text == "<|im_end|>"


def test_a_lone_surrogate_is_no_crash(vocab: LlamaVocab) -> None:
    tokens = vocab.tokenize("a\ud800b", add_special=False, parse_special=False)
    assert Detokenizer(vocab.piece).push(tokens) == "a?b"


def test_every_token_has_a_piece(vocab: LlamaVocab) -> None:
    assert all(isinstance(vocab.piece(token), bytes) for token in range(vocab.size))


def test_control_tokens_have_names(vocab: LlamaVocab) -> None:
    (token,) = vocab.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert vocab.name(token) == b"<|im_end|>"
    (letter, *_) = vocab.tokenize("a", add_special=False, parse_special=True)
    assert vocab.name(letter) == vocab.piece(letter)


def test_the_demo_model_never_learnt_to_fill_in(vocab: LlamaVocab) -> None:
    assert vocab.fill_in is None


@pytest.mark.parametrize("text", ["Once upon a time. " * 50, " " * 999, "\n\t" * 99, "🦙é" * 99])
def test_no_token_stands_for_more_than_the_longest(vocab: LlamaVocab, text: str) -> None:
    assert vocab.longest_token == max(len(vocab.name(token)) for token in range(vocab.size))
    tokens = vocab.tokenize(text + "<|im_end|>", add_special=False, parse_special=True)
    assert len(tokens) * vocab.longest_token >= len(text.encode())
