"""Bounds the stack and time that llama.cpp's tokenizers take.

A BPE tokenizer first splits a text into words. Some vocabularies have a splitter written by hand.
For all others llama.cpp uses `std::regex`, which calls itself for each character of a match. Each
call takes 320 bytes of stack, for every expression and every kind of character (llama.cpp 0.3.36's
build with GCC). So a long word without a break overflows the stack of an ordinary thread.

Before that, llama.cpp looks for special tokens in the whole text. Each found token costs time for
all earlier ones, so the time grows with the square of their number.
"""

import mmap
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from itertools import islice, pairwise
from typing import TypeVar

from ....shared.errors import InvalidRequest
from ..withdrawal import check_wanted

# ---- stack

STACK_PER_CHARACTER = 640
"""Bytes of stack per character: twice the measured number."""

LEAST_STACK = 2**20
"""Bytes of stack that do not depend on the text."""

SHORT = 512
"""The number of characters for which every thread has enough stack."""

WINDOW = 200_000
"""The number of characters of a window. A text is refused if one of its windows has no break.

The windows are adjacent, from the beginning of the text.
"""

MOST_AT_ONCE = 2 * WINDOW
"""Maximum characters without a break in a text that is not refused."""

_NAMES = """
a.x-4.0 chameleon chatglm-bpe codeshell command-r dbrx deepseek-r1-qwen exaone exaone4 f2llmv2
falcon-h1 falcon3 gemma4 gigachat glm4 glm5 gpt-2 granite-docling granite-embed-multi-311m
grok-2 hunyuan jais jina-de jina-es jina-v1-en jina-v2-code jina-v2-de jina-v2-es jina-v5-nano
kimi-k2 kormo laguna lfm2 llama-bpe llama-v3 llama3 megrez mellum mellum2 midm-2.0 minerva-7b
modern-bert mpt olmo phi-2 pixtral qwen2 qwen35 refact roberta-bpe sarvam-moe smaug-bpe smollm
solar-open stablelm2 starcoder trillion
"""
HAND_WRITTEN = frozenset(_NAMES.split())
"""Values of `tokenizer.ggml.pre` whose splitter needs the same stack for any length of word."""

_BLANKS = r" \t\n\r\v\f"
_SIGNS = r"!-/:-@\[-`{-~"
_LETTERS = "A-Za-zÀ-ÖØ-öø-ɏΑ-ΡΣ-Ωα-ωЀ-ҁא-תؠ-يऄ-हก-ะぁ-ゖァ-ヺ一-龥가-힣"
"""Letters in every version of Unicode.

Other characters beyond ASCII count as any kind, so that no table here has to agree with
llama.cpp's.
"""

_SOME_DIGITS = rf"[^\x00-/:-\x7f{_LETTERS}]"
_SOME_BLANKS = rf"[^\x00-\x08\x0e-\x1f!-\x7f{_LETTERS}]"

_STRETCHES = (
    rf"[^{_BLANKS}0-9{_SIGNS}\uff01\uff0c\uff1a\uff1b\uff1f]+",
    rf"[^ \t\v\f0-9{_LETTERS}]+",
    f"{_SOME_DIGITS}+",
    f"{_SOME_BLANKS}+",
)
"""The characters of one match of a splitter: letters, signs and line ends, digits, blanks."""

_WHOLE_WORDS = (f"[^{_BLANKS}]+", f"{_SOME_BLANKS}+")
_STRETCHES_OF = {
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat", "viking", "whitespace"), _WHOLE_WORDS),
    "exaone-moe": (rf"[^\t\n\r\v\f0-9{_SIGNS}]+", *_STRETCHES),
}
"""The same for splitters whose matches may be longer."""

_OVER_LINES = ("superbpe", "hybriddna")
"""Splitters whose words may have characters of several lines."""

# ---- time

_TRIED_ANEW = {"deepseek-llm": f"{_SOME_BLANKS}{{32,}}", "superbpe": f"{_SOME_DIGITS}{{32,}}"}
"""Splitters that scan the rest of a stretch again from each character of the stretch."""

MOST_TRIES = 10**8
"""Maximum characters that are scanned again in one text; this takes about 5 seconds."""

T = TypeVar("T")


class Splitter:
    """The splitter of a vocabulary, by its `name` in the model file; `None` if the file names
    none.
    """

    def __init__(self, name: str | None) -> None:
        self.is_recursive = name is not None and name not in HAND_WRITTEN
        self.ends_at_lines = name is not None and name not in _OVER_LINES
        stretches = _STRETCHES_OF.get(name or "", _STRETCHES) if self.is_recursive else ()
        self._stretches = tuple(map(re.compile, stretches))
        tried = _TRIED_ANEW.get(name or "")
        self._tried_anew = re.compile(tried) if tried else None

    def check(self, text: str) -> None:
        """Raise `InvalidRequest` if splitting `text` would take too much stack or time."""
        for start in range(0, len(text) - WINDOW + 1, WINDOW):
            if any(
                (found := each.match(text, start, start + WINDOW)) and found.end() == start + WINDOW
                for each in self._stretches
            ):
                raise InvalidRequest(
                    f"the text has {WINDOW} characters or more in a row without a break from "
                    f"character {start} on; this model's tokenizer cannot split such a text: put "
                    "line breaks or blanks into it"
                )
        if self._tried_anew is not None:
            found_in = self._tried_anew.finditer(text)
            tries = sum((found.end() - found.start()) ** 2 for found in found_in)
            if tries > MOST_TRIES:
                raise InvalidRequest(
                    "the text has too many or too long stretches of digits or white space; this "
                    "model's tokenizer needs time with the square of their length: shorten them"
                )

    def split(self, num_characters: int, tokenize: Callable[[], T]) -> T:
        """Call `tokenize`, for a part of a checked text, on a thread with enough stack."""
        if not self.is_recursive or num_characters <= SHORT:
            return tokenize()
        deepest = min(num_characters, MOST_AT_ONCE)
        return _with_stack(LEAST_STACK + deepest * STACK_PER_CHARACTER, tokenize)


_creation = threading.Lock()
"""Held while a thread is created: the size of a stack is a setting of the whole process."""

_deep = threading.Lock()
"""Held by a thread with a very large stack, so that there is at most one and memory is bounded."""

VERY_LARGE = 64 * 2**20
"""The number of bytes of stack that only one thread at a time may exceed."""


def _with_stack(size: int, work: Callable[[], T]) -> T:
    """Call `work` on a thread with a stack of `size` bytes. The memory is taken as it is used."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # it is raised again for the caller
            done.set_exception(error)

    with _deep if size > VERY_LARGE else nullcontext():
        with _creation:
            before = threading.stack_size(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
            try:
                thread = threading.Thread(target=run, name="tokenize")
                thread.start()
            finally:
                threading.stack_size(before)
        thread.join()
    return done.result()


# ---- special tokens

LEAST_CUT = 4096
"""The number of bytes of a text below which cutting gains nothing."""

MOST_FOUND = 128
"""Maximum special tokens in one part of a text."""

LEAST_LINES = 64 * 1024
"""Minimum bytes of a part of a text that ends at a line's end."""

_LINE = re.compile(rb"(?<=[!-~]\n)(?=[!-~])")
"""Matches the beginning of a line, if neither neighbouring line has white space there.

Splitters look at the white space around a line's end, and at the characters after it.
"""

_START, _REST = b"\xff", b"\xfe"
"""Bytes that no UTF-8 text contains."""


class SpecialTexts:
    """The texts of special tokens in llama.cpp's search order: the longest first, each leftmost.

    `strips`: some of these tokens swallow the white space next to them.
    """

    def __init__(self, texts: Iterable[bytes], *, strips: bool) -> None:
        self._texts = sorted({each for each in texts if each}, key=len, reverse=True)
        self._strips = strips
        beginnings = sorted({each[:3] for each in self._texts})
        self._begun = re.compile(b"|".join(map(re.escape, beginnings)) or b"(?!)")
        self._is_clear = not _overlap(self._texts)
        self._spare_lines = not strips and not any(
            b"\n" in each and each.strip() for each in self._texts
        )

    def parts(self, data: bytes, *, ends_at_lines: bool) -> Iterator[bytes]:
        """Yield parts of `data` that each take little time and together have the same tokens.

        `data` is cut before special tokens. If no word has characters of two lines, `data` is also
        cut between lines.
        """
        cuts = self._cuts(data) if len(data) > LEAST_CUT and self._is_clear else ()
        for start, end in pairwise((0, *cuts, len(data))):
            while (
                ends_at_lines
                and self._spare_lines
                and (line := _LINE.search(data, start + LEAST_LINES, end))
            ):
                yield data[start : line.start()]
                start = line.start()
            yield data[start:end]

    def _cuts(self, data: bytes) -> Iterator[int]:
        begun = self._begun.finditer(data)
        if next(islice(begun, MOST_FOUND, None), None) is None:
            return
        marked = data
        for text in self._texts:
            check_wanted()
            if text in marked:
                marked = marked.replace(text, _START + _REST * (len(text) - 1))
        num_found = 0
        for found in re.finditer(_START, marked):
            place = found.start()
            if num_found >= MOST_FOUND and not (self._strips and _is_blank(data, place)):
                num_found = 0
                yield place
            num_found += 1


def _is_blank(data: bytes, place: int) -> bool:
    """Return whether there is white space next to `place`, which a token may swallow."""
    return data[place - 1 : place].isspace() or data[place : place + 1].isspace()


def _overlap(texts: Iterable[bytes]) -> bool:
    """Return whether one text ends with the beginning of another text of the same length.

    The order in which llama.cpp looks for two such texts is unknown.
    """
    begun: dict[tuple[int, bytes], set[bytes]] = {}
    ends = [(text, length) for text in texts for length in range(1, len(text))]
    for text, length in ends:
        begun.setdefault((len(text), text[:length]), set()).add(text)
    return any(begun.get((len(text), text[length:]), {text}) != {text} for text, length in ends)
