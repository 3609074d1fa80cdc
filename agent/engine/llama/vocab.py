"""A model's vocabulary: text to token ids and back.

A vocabulary never changes, so any thread may use it while the worker decodes. It lives as long as
its model. Pieces are looked up on first use, and cached.
"""

import ctypes
import logging
from array import array
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ....shared.errors import InvalidRequest
from ..loaded_model import FillIn, GrammarTokens
from ..withdrawal import check_wanted
from .splitting import SpecialTexts, Splitter

logger = logging.getLogger(__name__)

MAX_SPECIAL = 16
"""Maximum tokens that `add_special` adds to a text."""

_PIECE_BYTES = 64

_BLANK = "\u2581"
"""SentencePiece's space."""

_LOSSLESS = (llama_cpp.LLAMA_VOCAB_TYPE_SPM, llama_cpp.LLAMA_VOCAB_TYPE_BPE)
_CONTROLS = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
_STRIPS = llama_cpp.LLAMA_TOKEN_ATTR_LSTRIP | llama_cpp.LLAMA_TOKEN_ATTR_RSTRIP
_BYTES_OF_UTF_8 = {bytes([value]) for value in (*range(0xC0), *range(0xC2, 0xF5))}


class LlamaVocab:
    """`loaded_model.Vocab` over llama.cpp's vocabulary handle."""

    def __init__(self, handle: Any, pre_tokenizer: str = "") -> None:
        """Make the vocabulary. `pre_tokenizer` is the model file's name for the way texts are
        split.
        """
        self.handle = handle
        self.size: int = llama_cpp.llama_vocab_n_tokens(handle)
        self._attributes = array(
            "L", (llama_cpp.llama_vocab_get_attr(handle, token) for token in range(self.size))
        )
        self.end_tokens = frozenset(
            token for token in range(self.size) if llama_cpp.llama_vocab_is_eog(handle, token)
        )
        self.suppressed_tokens = self._suppressed_tokens()
        self.bos_text = self._text_of(llama_cpp.llama_vocab_bos(handle))
        self.eos_text = self._text_of(llama_cpp.llama_vocab_eos(handle))
        self.fill_in = self._fill_in()
        self.control_texts = self._control_texts()
        self._pieces: list[bytes | None] = [None] * self.size
        is_split = llama_cpp.llama_vocab_type(handle) == llama_cpp.LLAMA_VOCAB_TYPE_BPE
        self.splitter = Splitter(pre_tokenizer if is_split else None)
        controls = self._with(_CONTROLS)
        user_defined = self._with(llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED)
        self._specials = {
            False: self._special_texts(user_defined - controls),
            True: self._special_texts(user_defined | controls),
        }

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Return the token ids of `text`; see `Vocab`."""
        check_wanted()
        self.splitter.check(text)
        if self._only_characters is not None:
            self._check_characters(text, self._only_characters, parse_special=parse_special)
        # A lone surrogate is no character and has no UTF-8: it becomes "?".
        first, *others = self._specials[parse_special].parts(
            text.encode("utf-8", "replace"), ends_at_lines=self.splitter.ends_at_lines
        )
        if not others:
            return self._tokens(first, add_special=add_special, parse_special=parse_special)
        before, after = self._around if add_special else ((), ())
        tokens = [*before]
        for part in (first, *others):
            check_wanted()
            tokens += self._tokens(part, add_special=False, parse_special=parse_special)
        return (*tokens, *after)

    @cached_property
    def _only_characters(self) -> frozenset[str] | None:
        """The characters that have tokens; `None` if byte tokens cover all other characters.

        llama.cpp ends the process if it lacks the token of a byte.
        """
        if llama_cpp.llama_vocab_type(self.handle) != llama_cpp.LLAMA_VOCAB_TYPE_SPM:
            return None
        texts = {llama_cpp.llama_vocab_get_text(self.handle, token) for token in range(self.size)}
        if all(b"<0x%02X>" % byte in texts for byte in range(256)):
            return None
        characters = {text.decode("utf-8", "replace") for text in texts}
        return frozenset(each for each in characters if len(each) == 1)

    def _check_characters(self, text: str, known: frozenset[str], *, parse_special: bool) -> None:
        for control in self.control_texts if parse_special else ():
            text = text.replace(control, "")
        unknown = next((each for each in text.replace(" ", _BLANK) if each not in known), None)
        if unknown is not None:
            raise InvalidRequest(
                f"the text has the character {unknown!r}, for which this model has no token"
            )

    @cached_property
    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens that `add_special` adds before and after a text."""
        both = self._tokens(b"", add_special=True, parse_special=False)
        has_first = len(both) > 1 or llama_cpp.llama_vocab_get_add_bos(self.handle)
        return (both[:1], both[1:]) if has_first else ((), both)

    def _tokens(self, data: bytes, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return self.splitter.split(
            len(data), lambda: self._tokenized(data, add_special, parse_special)
        )

    def _tokenized(self, data: bytes, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        room = len(data) + MAX_SPECIAL
        while True:
            tokens = (ctypes.c_int32 * room)()
            count = llama_cpp.llama_tokenize(
                self.handle, data, len(data), tokens, room, add_special, parse_special
            )
            if count >= 0:
                return tuple(tokens[:count])
            room = -count

    @cached_property
    def longest_token(self) -> int:
        """The maximum bytes of text per token; 0 if there is no bound.

        Only two kinds of tokenizers keep every byte: SentencePiece's BPE (with its byte tokens)
        and byte-level BPE. Other tokenizers normalise, or have one token for any unknown word. A
        control token that swallows white space also removes the bound.
        """
        if llama_cpp.llama_vocab_type(self.handle) not in _LOSSLESS or self._with(_STRIPS):
            return 0
        names = {self.name(token) for token in range(self.size)}
        return max(map(len, names)) if names >= _BYTES_OF_UTF_8 else 0

    @property
    def pair_marks(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The tokens before, between and after two texts that the model compares."""
        handle = self.handle
        sep, bos, eos = (
            llama_cpp.llama_vocab_sep(handle),
            llama_cpp.llama_vocab_bos(handle),
            llama_cpp.llama_vocab_eos(handle),
        )
        ends = _named(sep if eos == llama_cpp.LLAMA_TOKEN_NULL else eos)
        ends = ends if llama_cpp.llama_vocab_get_add_eos(handle) else ()
        begins = _named(bos) if llama_cpp.llama_vocab_get_add_bos(handle) else ()
        between = _named(sep) if llama_cpp.llama_vocab_get_add_sep(handle) else ()
        return begins, ends + between, ends

    def piece(self, token: int) -> bytes:
        """Return the bytes of `token`; empty for control tokens."""
        piece = self._pieces[token]
        if piece is None:
            piece = self._pieces[token] = self._look_up(token, special=False)
        return piece

    def name(self, token: int) -> bytes:
        """Return the vocabulary's name of `token`; for a control token, the token's text."""
        return self._look_up(token, special=True)

    def _look_up(self, token: int, *, special: bool) -> bytes:
        room = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = llama_cpp.llama_token_to_piece(self.handle, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def _text_of(self, token: int) -> str:
        if token == llama_cpp.LLAMA_TOKEN_NULL:
            return ""
        return self.name(token).decode("utf-8", "replace")

    def _control_texts(self) -> tuple[str, ...]:
        """Return the texts of control tokens, except texts that are meant to be read, such as
        `<think>`.
        """
        return tuple(filter(None, map(self._text_of, sorted(self._with(_CONTROLS)))))

    def _special_texts(self, tokens: set[int]) -> SpecialTexts:
        texts = (llama_cpp.llama_vocab_get_text(self.handle, token) for token in tokens)
        return SpecialTexts(texts, strips=not tokens.isdisjoint(self._with(_STRIPS)))

    def _with(self, kinds: int) -> set[int]:
        """Return the tokens with one of these attributes."""
        return {token for token, has in enumerate(self._attributes) if has & kinds}

    def _fill_in(self) -> FillIn | None:
        before, after, between = (
            llama_cpp.llama_vocab_fim_pre(self.handle),
            llama_cpp.llama_vocab_fim_suf(self.handle),
            llama_cpp.llama_vocab_fim_mid(self.handle),
        )
        if llama_cpp.LLAMA_TOKEN_NULL in (before, after, between):
            return None
        return FillIn(before, after, between)

    def _suppressed_tokens(self) -> frozenset[int]:
        """Return tokens that must never be generated, according to the model file."""
        count = ctypes.c_int32(0)
        tokens = llama_cpp.llama_vocab_get_suppress_tokens(self.handle, ctypes.byref(count))
        return frozenset(tokens[: count.value]) if count.value else frozenset()


def _named(token: int) -> tuple[int, ...]:
    return () if token == llama_cpp.LLAMA_TOKEN_NULL else (token,)


# ---- the vocabulary as llguidance takes it

_CONTROL = b"\xff"
"""llguidance's prefix for tokens without text: this byte never occurs in UTF-8."""


def grammar_tokens(vocab: LlamaVocab) -> GrammarTokens | None:
    """Return the vocabulary for grammars; `None` if grammars cannot use it.

    A grammar also needs a token that ends an answer. The result uses `vocab`: do not use it after
    the model was freed.
    """
    if not vocab.end_tokens:
        return None
    pieces = [_bytes_of(vocab, token) for token in range(vocab.size)]
    try:
        begin = _beginning(vocab, pieces)
    except ValueError as error:
        logger.warning("answers cannot be constrained with this model's vocabulary: %s", error)
        return None
    return GrammarTokens(pieces, sorted(vocab.end_tokens), partial(_inner_tokens, vocab, begin))


def _beginning(vocab: LlamaVocab, pieces: Sequence[bytes]) -> str:
    """Return a text to put before another, so that it is tokenised as the middle of an answer.

    Some vocabularies write a space before the first word of a text. Raises `ValueError` if that
    cannot be avoided.
    """

    def is_kept(begin: str) -> bool:
        tokens = _inner_tokens(vocab, begin, "a")
        return (
            all(token < len(pieces) for token in tokens)
            and b"".join(pieces[token] for token in tokens) == b"a"
        )

    if is_kept(""):
        return ""
    known = set(pieces)
    longer = {each[: 2 if each[:1] == b" " else 1] for each in pieces if len(each.strip(b" ")) > 1}
    for code in range(1, 32):
        sign = bytes([code])
        if sign in known and not {sign, b" " + sign} & longer and is_kept(sign.decode()):
            return sign.decode()
    raise ValueError("no token can stand before a text without changing its tokens")


def _inner_tokens(vocab: LlamaVocab, begin: str, text: str) -> tuple[int, ...]:
    """Return the tokens of `text` after `begin`; empty on failure, or if one token spans both."""
    before = vocab.tokenize(begin, add_special=False, parse_special=False) if begin else ()
    try:
        tokens = vocab.tokenize(begin + text, add_special=False, parse_special=False)
    except InvalidRequest:
        return ()
    return tokens[len(before) :] if tokens[: len(before)] == before else ()


def _bytes_of(vocab: LlamaVocab, token: int) -> bytes:
    """Return the bytes of `token`; empty if no grammar may choose it."""
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
