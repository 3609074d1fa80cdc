"""The demo model's vocabulary."""

import json
from copy import copy
from dataclasses import replace
from typing import cast

import jsonschema
import pytest

from arriero.agent.chat.constraints.lark import Lark
from arriero.agent.chat.output.transcript import Detokenizer
from arriero.agent.engine.grammar.grammars import Grammars
from arriero.agent.engine.llama.engine import LlamaEngine
from arriero.agent.engine.llama.vocab import LlamaVocab, grammar_tokens
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId
from tests.agent.engine.llama.running import TEXTS, Ended, generate, prompt


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


# ---- the vocabulary as llguidance takes it


def test_it_is_the_same_vocabulary(vocab: LlamaVocab) -> None:
    grammar = grammar_tokens(vocab)
    assert grammar is not None
    assert len(grammar.pieces) == vocab.size
    assert set(grammar.ends) == vocab.end_tokens
    for text in ("What is a slot?", '{"naïve": [1, "€"]}', "<tool_call>\n"):
        tokens = vocab.tokenize(text, add_special=False, parse_special=False)
        assert grammar.tokenize(text) == tokens
        assert b"".join(grammar.pieces[token] for token in tokens) == text.encode()


class Spacing:
    """A vocabulary of single bytes that writes a space before the first word of a text."""

    size = 256
    end_tokens = frozenset({0})
    suppressed_tokens: frozenset[int] = frozenset()

    def __init__(self, handle: object) -> None:
        self.handle = handle

    def piece(self, token: int) -> bytes:
        return bytes([token])

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return tuple(text.encode() if ord(text[0]) < 32 else b" " + text.encode())


def test_a_text_in_the_middle_of_an_answer_gets_no_space(vocab: LlamaVocab) -> None:
    grammar = grammar_tokens(cast("LlamaVocab", Spacing(vocab.handle)))
    assert grammar is not None
    assert grammar.tokenize("ab") == tuple(b"ab")
    assert grammar.tokenize("\x01b") == tuple(b"\x01b")


def test_without_an_end_there_is_nothing_to_come_to(vocab: LlamaVocab) -> None:
    endless = copy(vocab)
    endless.end_tokens = frozenset()
    assert grammar_tokens(endless) is None


def test_what_llguidance_cannot_take_is_said(
    vocab: LlamaVocab, caplog: pytest.LogCaptureFixture
) -> None:
    """A vocabulary that writes nothing as it is, as those of encoders do."""
    odd = copy(vocab)
    odd.size = 3
    assert grammar_tokens(odd) is None
    assert "cannot be constrained" in caplog.text


def test_only_tokens_without_text_are_special(vocab: LlamaVocab) -> None:
    grammar = grammar_tokens(vocab)
    assert grammar is not None
    special = {token for token, piece in enumerate(grammar.pieces) if piece[:1] in (b"", b"\xff")}
    # A byte that is in no UTF-8 looks special, and no grammar could choose it anyhow.
    pieces = {token: vocab.piece(token) for token in range(vocab.size)}
    assert special == {token for token, piece in pieces.items() if piece in (b"", b"\xff")}
    assert special


SCHEMA = {
    "type": "object",
    "properties": {
        "about": {"type": "string", "minLength": 20, "maxLength": 30},
        "again": {"type": "string", "minLength": 20, "maxLength": 30},
        "parts": {"type": "array", "items": {"enum": ["one", "other"]}, "minItems": 9},
    },
    "required": ["about", "again", "parts"],
    "additionalProperties": False,
}
SCHEMA["properties"]["parts"]["maxItems"] = 9  # type: ignore[index]
SAMPLINGS = [Sampling(seed=0, temperature=0), Sampling(seed=3, temperature=1.0)]


def wanted(engine: LlamaEngine, sampling: Sampling) -> list[NewSequence]:
    assert engine.model.grammar_tokens is not None
    lark = Lark({})
    constraint = Grammars(engine.model.grammar_tokens).compile(lark.grammar(lark.json(SCHEMA)))
    return [
        NewSequence(
            id=SequenceId(number),
            prompt=Prompt(prompt(engine, text)),
            max_tokens=150,
            sampling=replace(sampling, seed=sampling.seed + number),
            # Some are free, in the same steps.
            constraint=constraint if number % 3 else None,
        )
        for number, text in enumerate(TEXTS[:6])
    ]


def check(engine: LlamaEngine, ended: Ended) -> None:
    for number, (tokens, reason) in ended.items():
        text = b"".join(map(engine.model.vocab.piece, tokens)).decode()
        if number % 3 and reason == "stop":
            jsonschema.validate(json.loads(text), SCHEMA)
        elif number % 3:
            assert text.startswith("{")


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "by chance"])
def test_however_they_are_computed(speculating_engine: LlamaEngine, sampling: Sampling) -> None:
    engine = speculating_engine
    sequences = wanted(engine, sampling)
    alone, _ = generate(engine, sequences, slots=1)
    check(engine, alone)
    assert any(reason == "stop" for number, (_, reason) in alone.items() if number % 3)

    together, _ = generate(engine, sequences, slots=8)
    preempted, statistics = generate(engine, sequences, slots=8, num_cells=256)
    assert statistics.num_preemptions > 0
    drafted, statistics = generate(engine, sequences, slots=8, max_draft=6)
    assert statistics.drafted_tokens > 0
    for ended in (together, preempted, drafted):
        check(engine, ended)
        # What a model is made to say it finds equally odd: the order of a sum may decide.
        assert sum(ended[number] == alone[number] for number in alone) >= len(alone) // 2
