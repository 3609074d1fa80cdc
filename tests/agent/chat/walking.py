"""Answers drawn by chance from a grammar, by one who knows how its texts may end."""

import random
from collections.abc import Mapping, Sequence

import numpy as np

from arriero.agent.chat.output.transcript import Detokenizer
from arriero.agent.engine.grammar.constraint import Constraint
from tests.agent.saying import at_once, demo_vocab


def walk(
    constraint: Constraint,
    seed: int,
    *,
    words: Sequence[str],
    shown: Mapping[int, bytes],
    max_tokens: int = 400,
) -> str | None:
    """A text that the constraint allows; `None` if it did not come to its end in time.

    At any place one of `words` may be begun; it is written as far as it is allowed.
    """
    vocab = demo_vocab()
    rng = random.Random(seed)
    spelled = [spelled_out(word, shown) for word in words]
    state = constraint.begin(at_once)
    detokenizer = Detokenizer(lambda token: shown.get(token) or vocab.piece(token))
    text, planned = "", []
    for _ in range(max_tokens):
        row = np.zeros(vocab.size, np.float32)
        state.restrict(row)
        assert state.failure is None
        allowed = np.flatnonzero(np.isfinite(row))
        ends = [token for token in allowed if int(token) in vocab.end_tokens]
        if ends and (len(ends) == len(allowed) or rng.random() < 0.3):
            return text
        if not planned and rng.random() < 0.6:
            planned = list(rng.choice(spelled))
        token = planned.pop(0) if planned else -1
        if token not in allowed or token in ends:
            planned = []
            token = int(rng.choice([each for each in allowed if each not in ends]))
        state.accept(token)
        text += detokenizer.push((token,))
    return None


def spelled_out(word: str, shown: Mapping[int, bytes]) -> tuple[int, ...]:
    """The tokens of `word`, in which a control token stands for what is shown for it."""
    for token, marker in shown.items():
        before, found, after = word.partition(marker.decode())
        if found:
            return (*spelled_out(before, {}), token, *spelled_out(after, shown))
    return demo_vocab().tokenize(word, add_special=False, parse_special=False) if word else ()
