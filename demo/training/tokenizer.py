"""Trains the byte-level BPE tokenizer, in the form that llama.cpp calls `gpt-2`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

VOCABULARY = 2048
END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
CONTROL_TOKENS = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
VISIBLE_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
MARKS = re.compile("|".join(re.escape(mark) for mark in CONTROL_TOKENS + VISIBLE_TOKENS))


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Return a tokenizer that covers every byte and has each mark as one token."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[*CONTROL_TOKENS, *VISIBLE_TOKENS],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces_between_marks(texts), trainer)
    return tokenizer


def pieces_between_marks(texts: Iterable[str]) -> Iterable[str]:
    """Split texts at the marks, so that no merge crosses a mark."""
    for text in texts:
        yield from MARKS.split(text)
