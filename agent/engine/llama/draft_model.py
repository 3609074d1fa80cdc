"""llama.cpp as a draft model: weights and a context of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ..draft_model import DraftFailedError, DraftRun, Guess
from ..load_options import LoadOptions
from ..model_error import ModelError
from ..step import Run
from .context import CannotGenerateError, Context
from .model import Model, check_model_file


class LlamaDraftModel:
    """`draft_model.DraftModel` over a loaded model; see `load_draft_model`."""

    def __init__(self, model: Model, options: LoadOptions, *, num_cells: int) -> None:
        self._model = model
        self._context = Context(model, options, num_cells=num_cells, num_rows=options.slots + 1)
        self._context.clear()
        self.num_slots = options.slots
        self.num_cells = num_cells
        self.batch_size = self._context.batch_size
        self.longest = min(options.slot_tokens, model.longest_context(options))
        self.end_tokens = model.vocab.end_tokens

    @property
    def name(self) -> str:
        """The model's name for people."""
        return self._model.name

    @property
    def size_bytes(self) -> int:
        """The size of the weights."""
        return self._model.size_bytes

    def compute(self, runs: Sequence[DraftRun]) -> list[Guess]:
        """Return a guess for each run with `guesses`, in their order. Raises
        `DraftFailedError`.
        """
        failure = self._context.decode(
            [Run(run.id, run.slot, run.start, run.tokens, run.guesses) for run in runs]
        )
        if failure is not None:
            raise DraftFailedError(f"the draft model {self._model.path} failed: {failure}")
        num_rows = sum(run.guesses for run in runs)
        if not num_rows:
            return []
        shape = (num_rows, self._model.vocab.size)
        return guesses_of(np.ctypeslib.as_array(self._context.logits, shape))

    def cut(self, slot: int, length: int) -> None:
        """Drop all tokens of `slot` except the first `length`."""
        llama_cpp.llama_memory_seq_rm(self._context.memory, slot, length, -1)

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Set the threads for steps of one token, and for larger steps, from now on."""
        self._context.use_threads(threads, threads_batch)

    def free(self) -> None:
        """Free context and model."""
        self._context.free()
        self._model.free()


def load_draft_model(
    path: Path, target: Model, options: LoadOptions, *, num_cells: int
) -> LlamaDraftModel:
    """Load the draft model at `path` for sequences of `target`, with a cache of up to `num_cells`.

    Raises `ModelError` if the draft model cannot be loaded, or cannot draft for `target`.
    """
    check_model_file(path, "--draft-model")
    options = options.for_draft
    model = Model(path, options, kernels=target.kernels)
    try:
        check_pair(target, model)
        needed = options.slots * options.slot_tokens
        return LlamaDraftModel(model, options, num_cells=min(num_cells, needed))
    except CannotGenerateError as error:
        model.free()
        raise ModelError(f"--draft-model {path} cannot generate text") from error
    except ModelError:
        model.free()
        raise


def guesses_of(rows: NDArray[np.float32]) -> list[Guess]:
    """Return, per row, the token with the highest logit, and its probability."""
    tokens: NDArray[Any] = rows.argmax(axis=1)
    highest = rows[np.arange(len(rows)), tokens]
    with np.errstate(all="ignore"):
        chances = 1.0 / np.exp(rows - highest[:, None]).sum(axis=1)
    return [
        Guess(int(token), float(chance) if np.isfinite(chance) else 0.0)
        for token, chance in zip(tokens, chances, strict=True)
    ]


# ---- whether one model can draft for another


_KINDS = {
    llama_cpp.LLAMA_VOCAB_TYPE_SPM: "SentencePiece",
    llama_cpp.LLAMA_VOCAB_TYPE_BPE: "byte-level BPE",
    llama_cpp.LLAMA_VOCAB_TYPE_WPM: "WordPiece",
    llama_cpp.LLAMA_VOCAB_TYPE_UGM: "Unigram",
}


def check_pair(model: Model, draft: Model) -> None:
    """Raise `ModelError`, which names both files, unless `draft` can draft for `model`."""
    difference = _difference(model, draft)
    if difference is not None:
        raise ModelError(
            f"--draft-model {draft.path} cannot draft for {model.path}: {difference}; use a "
            "smaller model of the same family"
        )


def _difference(model: Model, draft: Model) -> str | None:
    """Return the difference that prevents drafting, in words; `None` if there is none."""
    ours, theirs = model.vocab, draft.vocab
    if not draft.can_share:
        return "its sequences cannot drop their last tokens (recurrent, hybrid or sliding window)"
    kinds = [llama_cpp.llama_vocab_type(vocab.handle) for vocab in (ours, theirs)]
    if kinds[0] != kinds[1]:
        here, there = (_KINDS.get(kind, str(kind)) for kind in kinds)
        return f"its vocabulary is of another type ({there} instead of {here})"
    if ours.size != theirs.size:
        return f"its vocabulary has {theirs.size} tokens instead of {ours.size}"
    for token in range(ours.size):
        if (text := theirs.name(token)) != (expected := ours.name(token)):
            return f"its token {token} is {_quoted(text)} instead of {_quoted(expected)}"
    if ours.end_tokens != theirs.end_tokens:
        return "other tokens of its vocabulary end an answer"
    return None


def _quoted(text: bytes) -> str:
    return repr(text.decode("utf-8", "replace"))
