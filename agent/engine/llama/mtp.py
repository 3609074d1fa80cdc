"""Multi-token prediction (MTP): layers of a model that predict the tokens after the next token.

The layers act as a draft model over the same weights, with a context and cells of their own. Their
input is each token with the hidden state from which the model chose the token: the state of the
previous position. The model's context outputs these states in each step. Within a draft, the
layers use their own states.

Only the last `WINDOW` states of a sequence are kept. So the layers do not see earlier tokens, nor
tokens that were cached when a sequence began. Their predictions depend mostly on the hidden state,
and are verified.

llama.cpp outputs hidden states through functions that are not in its C headers. The library has
them under C++ names, and a build may lack them. `llama_batch_ext_set_embd_state` is public, but
does nothing in this version; a batch with tokens and embeddings works.
"""

import ctypes
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ..draft_model import DraftFailedError, DraftRun, Guess
from ..load_options import LoadOptions
from ..model_error import ModelError
from ..sequence import SequenceId
from ..step import Run
from .context import Batch, Context
from .draft_model import guesses_of
from .log import route_log
from .model import Model, meta

logger = logging.getLogger(__name__)

WINDOW = 256
"""Hidden states kept per sequence."""

TRIED = frozenset({"qwen35", "qwen35moe"})
"""Architectures whose MTP layers were tried, one layer at a time."""

Row = NDArray[np.float32]


class _HiddenApi:
    """llama.cpp's functions for hidden states. Raises `AttributeError` if a build lacks them."""

    def __init__(self) -> None:
        library = llama_cpp._lib
        self._give_out = library._Z26llama_set_embeddings_nextnP13llama_contextbb
        self._give_out.argtypes = (ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool)
        self._give_out.restype = None
        self._given_out = library._Z26llama_get_embeddings_nextnP13llama_context
        self._given_out.argtypes = (ctypes.c_void_p,)
        self._given_out.restype = ctypes.POINTER(ctypes.c_float)

    def give_out(self, context: Context, *, of_outputs: bool) -> None:
        """Make each step output the states of all its tokens, or only of tokens with logits."""
        self._give_out(context.handle, True, of_outputs)

    def rows(self, context: Context, count: int, width: int) -> Row:
        """Return the first `count` states of the last step; the next step overwrites them."""
        return np.ctypeslib.as_array(self._given_out(context.handle), (count, width))


class HiddenStates:
    """The last hidden states of a sequence: rows of consecutive positions up to `end - 1`."""

    def __init__(self) -> None:
        self.end = 0
        self._rows: deque[Row] = deque(maxlen=WINDOW)

    def put(self, start: int, rows: Row) -> None:
        """Replace the states from `start` on."""
        while self._rows and self.end > start:
            self._rows.pop()
            self.end -= 1
        if self.end != start:
            self._rows.clear()
        self._rows.extend(rows[-WINDOW:].copy())
        self.end = start + len(rows)

    def at(self, position: int) -> Row | None:
        """Return the state of a position; `None` if it is not kept."""
        index = position - (self.end - len(self._rows))
        return self._rows[index] if 0 <= index < len(self._rows) else None


_NO_STATES = HiddenStates()


@dataclass(slots=True)
class _Text:
    """The computed tokens of a draft slot.

    The first `num_true` tokens were computed from the model's states, and the last tokens,
    `drafted`, from the layers' own states. `state` is the layers' own state of the position
    `last`.
    """

    num_true: int = 0
    drafted: list[int] = field(default_factory=list)
    last: int = -1
    state: Row | None = None

    def cut(self, length: int) -> None:
        self.num_true = min(self.num_true, length)
        del self.drafted[length - self.num_true :]
        if self.last >= length:
            self.last, self.state = -1, None

    def note(self, start: int, tokens: Sequence[int], num_true: int) -> None:
        """Record that `tokens` were computed from `start` on.

        The first `num_true` of them were computed from the model's states.
        """
        if not self.drafted:
            self.num_true = start + num_true
            tokens = tokens[num_true:]
        self.drafted += tokens


class LlamaMtp:
    """`draft_model.DraftModel` over the MTP layers of a model; `target` computes its sequences.

    Raises `ModelError` if the MTP layers cannot have a context.
    """

    def __init__(
        self,
        model: Model,
        target: Context,
        options: LoadOptions,
        *,
        num_cells: int,
        api: _HiddenApi,
    ) -> None:
        self._target = target
        self._context = Context(
            model, options, num_cells=num_cells, num_rows=options.slots + 1, is_mtp=True
        )
        self._context.clear()
        api.give_out(target, of_outputs=False)
        api.give_out(self._context, of_outputs=True)
        self._api = api
        self.name = f"{model.name} (MTP)"
        self.num_slots = options.slots
        self.num_cells = num_cells
        self.longest = min(options.slot_tokens, model.trained_context)
        self.batch_size = self.longest  # of most of them nothing is known, and nothing computed
        self.end_tokens = model.vocab.end_tokens
        self._vocab_size = model.vocab.size
        self._width = int(llama_cpp.llama_model_n_embd(model.handle))
        self._nothing = np.zeros(self._width, np.float32)
        self._num_rows = self._context.batch_size
        self._states = np.zeros((self._num_rows, self._width), np.float32)
        self._batch = Batch(self._num_rows)
        self._batch.raw.embd = self._states.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._texts = [_Text() for _ in range(options.slots)]
        self._hidden: dict[SequenceId, HiddenStates] = {}

    # ---- the model's steps

    def follow(self, id: SequenceId) -> None:
        """Keep the hidden states of a sequence. Thread-safe, like `forget`."""
        self._hidden[id] = HiddenStates()

    def forget(self, id: SequenceId) -> None:
        """Forget a sequence. Unknown ids are ignored."""
        self._hidden.pop(id, None)

    def take(self, runs: Sequence[Run]) -> None:
        """Store the hidden states of `runs`, which `target` has just computed; no run is media."""
        num_tokens = sum(len(run.tokens) for run in runs)
        rows = self._api.rows(self._target, num_tokens, self._width)
        first = 0
        for run in runs:
            end = first + len(run.tokens)
            if (hidden := self._hidden.get(run.id)) is not None:
                hidden.put(run.start, rows[first:end])
            first = end

    # ---- drafts

    def compute(self, runs: Sequence[DraftRun]) -> list[Guess]:
        """Return a guess for each run with `guesses`, in their order. Raises `DraftFailedError`.

        Tokens without a known hidden state are skipped.
        """
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        outputs: list[int] = []
        spare = self._num_rows - sum(len(run.tokens) for run in runs)
        for run in runs:
            start, new, states = self._prepared(run, spare)
            spare -= max(0, len(new) - len(run.tokens))
            for row, state in enumerate(states, len(tokens)):
                self._states[row] = state
            tokens += new
            positions += range(start, start + len(new))
            slots += [run.slot] * len(new)
            outputs += [len(tokens) - 1] * run.guesses
        if not tokens:
            return []
        self._batch.fill_rows(tokens, positions, slots, outputs)
        failure = self._context.decode_raw(self._batch.raw)
        if failure is not None:
            raise DraftFailedError(f"the layers for MTP failed: {failure}")
        return self._guesses([run for run in runs if run.guesses])

    def cut(self, slot: int, length: int) -> None:
        """Drop all tokens of `slot` except the first `length`."""
        self._texts[slot].cut(length)
        llama_cpp.llama_memory_seq_rm(self._context.memory, slot, length, -1)

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Set the threads for steps of one token, and for larger steps, from now on."""
        self._context.use_threads(threads, threads_batch)

    def free(self) -> None:
        """Free the context."""
        self._context.free()

    def _prepared(self, run: DraftRun, spare: int) -> tuple[int, tuple[int, ...], list[Row]]:
        """Return the tokens to compute for `run`: their start, the tokens, and the state of each.

        Drafted tokens that were accepted are computed again from the model's own states, if there
        are `spare` rows.
        """
        text, hidden = self._texts[run.slot], self._hidden.get(run.id, _NO_STATES)
        start, tokens = run.start, run.tokens
        if text.drafted and len(text.drafted) <= spare and hidden.at(text.num_true - 1) is not None:
            start, tokens = text.num_true, (*text.drafted, *tokens)
            self.cut(run.slot, start)
        known = [hidden.at(position) for position in range(start - 1, start + len(tokens) - 1)]
        states = known
        if known and known[0] is None and text.last == start - 1:
            states = [text.state, *known[1:]]
        first = max((index for index, state in enumerate(states, 1) if state is None), default=0)
        if first:
            # Positions have to be consecutive: what was computed before is of no use.
            self.cut(run.slot, 0)
            first = min(first, len(tokens) - run.guesses)
            text.note(0, (), start + first)
        kept = tokens[first:]
        num_true = next((n for n, state in enumerate(known[first:]) if state is None), len(kept))
        text.note(start + first, kept, num_true)
        return (
            start + first,
            kept,
            [self._nothing if one is None else one for one in states[first:]],
        )

    def _guesses(self, runs: Sequence[DraftRun]) -> list[Guess]:
        if not runs:
            return []
        states = self._api.rows(self._context, len(runs), self._width)
        for run, state in zip(runs, states, strict=True):
            text = self._texts[run.slot]
            text.last, text.state = run.start + len(run.tokens) - 1, state.copy()
        shape = (len(runs), self._vocab_size)
        return guesses_of(np.ctypeslib.as_array(self._context.logits, shape))


def has_mtp(path: Path) -> bool:
    """Return whether the model at `path` has usable layers for MTP.

    llama.cpp ends the process if an architecture has no graph for MTP layers, so only tried
    architectures count. The result is false for a file that cannot be loaded.
    """
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    with route_log().hold_errors():
        handle = llama_cpp.llama_model_load_from_file(bytes(path), params)
    if not handle:
        return False
    architecture = meta(handle, "general.architecture")
    num_layers = meta(handle, f"{architecture}.nextn_predict_layers")
    llama_cpp.llama_model_free(handle)
    if num_layers in ("", "0"):
        return False
    if architecture in TRIED and num_layers == "1":
        return True
    logger.warning(
        "%s has %s layers for MTP, which are not used: they were not tried with %s",
        path,
        num_layers,
        architecture,
    )
    return False


def load_mtp(
    model: Model, target: Context, options: LoadOptions, *, num_cells: int
) -> LlamaMtp | None:
    """Return the MTP layers of `model`; `None` if it has none, or if they cannot be used."""
    if not model.loads_mtp:
        return None
    try:
        return LlamaMtp(model, target, options, num_cells=num_cells, api=_HiddenApi())
    except (AttributeError, ModelError) as error:
        logger.warning("the layers for MTP of %s are not used: %s", model.path, error)
        return None
