"""The vocabulary as llguidance takes it.

Making it takes most of a second for a large vocabulary and lets no other thread run, so it is made
while the model is loaded.
"""

import ctypes
import logging

import llama_cpp.llama_cpp as llama_cpp
from llguidance import LLTokenizer

from .vocab import LlamaVocab

logger = logging.getLogger(__name__)

_CONTROL = b"\xff"
"""llguidance's prefix for tokens without text: this byte never occurs in UTF-8."""


def grammar_tokens(vocab: LlamaVocab) -> LLTokenizer | None:
    """llguidance's tokenizer. It uses `vocab`: do not use it after the model was freed.

    `None` where llguidance cannot take it, or no token ends an answer, as a grammar demands.
    """
    if not vocab.end_tokens:
        return None
    try:
        return _made(vocab)
    except ValueError as error:
        logger.warning("answers cannot be constrained with this model's vocabulary: %s", error)
        return None


def _made(vocab: LlamaVocab) -> LLTokenizer:
    tokenize = ctypes.cast(llama_cpp._lib.llama_tokenize, ctypes.c_void_p).value
    return LLTokenizer.from_llamacpp(  # type: ignore[attr-defined, no-any-return]
        tokens=[_bytes_of(vocab, token) for token in range(vocab.size)],
        vocab_ptr=vocab.handle,
        tokenize_fptr=tokenize,
        eos_token=sorted(vocab.end_tokens),
        slices=LLTokenizer.json_slices(),
    )


def _bytes_of(vocab: LlamaVocab, token: int) -> bytes:
    """None for tokens that no grammar may choose."""
    if token in vocab.suppressed_tokens or _is_unused(vocab, token):
        return b""
    if piece := vocab.piece(token):
        return piece
    name = vocab.name(token)
    return _CONTROL + name if name else b""


def _is_unused(vocab: LlamaVocab, token: int) -> bool:
    attributes = llama_cpp.llama_vocab_get_attr(vocab.handle, token)
    return bool(
        attributes & (llama_cpp.LLAMA_TOKEN_ATTR_UNUSED | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN)
    )
