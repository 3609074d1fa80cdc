"""The demo model's vocabulary as llguidance takes it."""

from arriero.agent.engine.llama.grammar_tokens import grammar_tokens
from arriero.agent.engine.llama.vocab import LlamaVocab


def test_it_is_the_same_vocabulary(vocab: LlamaVocab) -> None:
    tokenizer = grammar_tokens(vocab)
    assert tokenizer.vocab_size == vocab.size
    assert set(tokenizer.eos_tokens) == vocab.end_tokens
    for text in ("What is a slot?", '{"naïve": [1, "€"]}', "<tool_call>\n"):
        tokens = vocab.tokenize(text, add_special=False, parse_special=False)
        assert tuple(tokenizer.tokenize_str(text)) == tokens
        assert tokenizer.decode_bytes(list(tokens)) == text.encode()


def test_only_tokens_without_text_are_special(vocab: LlamaVocab) -> None:
    tokenizer = grammar_tokens(vocab)
    special = {token for token in range(vocab.size) if tokenizer.is_special_token(token)}
    # A byte that is in no UTF-8 looks special, and no grammar could choose it anyhow.
    pieces = {token: vocab.piece(token) for token in range(vocab.size)}
    assert special == {token for token, piece in pieces.items() if piece in (b"", b"\xff")}
    assert special
