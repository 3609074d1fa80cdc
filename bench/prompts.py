"""The benchmark's prompts: random words, the same for the same seed.

No prompt is used twice, so that no server can have a prefix cached from another round, unless
prefix sharing is what is measured.
"""

import random
from pathlib import Path

from bench.dialects import Request

SHORTEST, LONGEST = 8, 128
"""Tokens of an answer where lengths are mixed."""

WORDS = (Path(__file__).parent / "words.txt").read_text().split()


def text(draw: random.Random, num_words: int) -> str:
    """`num_words` words in no order."""
    return " ".join(draw.choices(WORDS, k=num_words))


def uniform(seed: int, num: int, *, num_words: int, num_tokens: int) -> list[Request]:
    """`num` requests of one length."""
    draw = random.Random(seed)
    return [Request(text(draw, num_words), num_tokens) for _ in range(num)]


def sharing_prefix(
    seed: int, num: int, *, num_common: int, num_own: int, num_tokens: int
) -> list[Request]:
    """`num` requests that begin with the same words."""
    draw = random.Random(seed)
    common = text(draw, num_common)
    return [Request(f"{common} {text(draw, num_own)}", num_tokens) for _ in range(num)]


def mixed(seed: int, num: int, *, num_words: int, lengths_seed: int) -> list[Request]:
    """`num` requests for 8 to 128 tokens each; the lengths depend on `lengths_seed` alone."""
    draw, lengths = random.Random(seed), random.Random(lengths_seed)
    return [Request(text(draw, num_words), lengths.randint(SHORTEST, LONGEST)) for _ in range(num)]
