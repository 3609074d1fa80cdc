"""The demo model's vocabulary without its weights, and answers drawn by chance."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import numpy as np

from arriero.agent.chat.output.transcript import Detokenizer
from arriero.agent.engine.grammar.constraint import Constraint, GrammarState, Mask
from arriero.agent.engine.grammar.grammars import Grammars
from arriero.agent.engine.llama.log import route_log
from arriero.agent.engine.llama.vocab import LlamaVocab, grammar_tokens
from arriero.agent.engine.loaded_model import LoadedModel
from tests.agent.fakes import BYTES_INFO

DEMO = Path(__file__).parents[2] / "demo"
LIKELY = tuple(b'{}[]":, 0123456789')


@cache
def demo_vocab() -> LlamaVocab:
    """Loaded once, and as long as the tests run."""
    route_log()
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(bytes(DEMO / "arriero-demo.gguf"), params)
    return LlamaVocab(llama_cpp.llama_model_get_vocab(model))


@cache
def demo_grammars() -> Grammars:
    return Grammars(grammar_tokens(demo_vocab()))


def demo_model(template: str | None = None) -> LoadedModel:
    """As a preparer takes it; without a template it is the demo model's own."""
    source = (DEMO / "template.jinja").read_text() if template is None else template
    return LoadedModel(BYTES_INFO, demo_vocab(), source, grammar_tokens(demo_vocab()))


def at_once(work: Callable[[], Mask]) -> Future[Mask]:
    """Stands for an executor that has nothing else to do."""
    future: Future[Mask] = Future()
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
    return future


@dataclass(frozen=True)
class Said:
    """`is_whole`: it came to its end by itself."""

    text: str
    is_whole: bool
    failure: str | None


def say(
    constraint: Constraint,
    seed: int,
    *,
    max_tokens: int = 400,
    shown: dict[int, bytes] | None = None,
) -> Said:
    """What a model says that knows nothing; it likes what ends JSON, to come to an end at all."""
    vocab = demo_vocab()
    state = constraint.begin(at_once)
    rng = np.random.default_rng(seed)
    detokenizer = Detokenizer(lambda token: (shown or {}).get(token) or vocab.piece(token))
    text = ""
    for _ in range(max_tokens):
        row = rng.normal(size=vocab.size).astype(np.float32)
        for token in range(vocab.size):
            if vocab.piece(token) in (b'"', b"}", b"]", b"\n"):
                row[token] += 3
        row[sorted(vocab.end_tokens)] += 3
        state.restrict(row)
        token = int(row.argmax())
        if token in vocab.end_tokens:
            return Said(text, state.failure is None, state.failure)
        state.accept(token)
        text += detokenizer.push((token,))
    return Said(text, False, state.failure)


def fits(constraint: Constraint, text: str) -> bool:
    """Whether a model could have said just this under `constraint`."""
    vocab = demo_vocab()
    state = constraint.begin(at_once)
    for token in vocab.tokenize(text, add_special=False, parse_special=True):
        if not _may_follow(state, token):
            return False
        state.accept(token)
    return any(_may_follow(state, token) for token in vocab.end_tokens)


def _may_follow(state: GrammarState, token: int) -> bool:
    row = np.zeros(demo_vocab().size, np.float32)
    state.restrict(row)
    return bool(np.isfinite(row[token]))
