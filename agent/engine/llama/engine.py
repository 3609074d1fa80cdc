"""llama.cpp as the worker's engine: one context, one batch, one sampler a sequence.

One unified KV cache serves all slots, so that a prefix can be shared by reference. Kept prefixes
belong to numbers beyond the slots: with a unified cache llama.cpp's memory takes any below its own
limit, while every number that batches may use (`n_seq_max`) costs a row of logits and work in each
decode. One number between them belongs to nobody: llama.cpp reads out the cells of numbers that
batches may use only, so a kept prefix takes it for as long as that lasts. The context belongs to
the thread that made it.
"""

import ctypes
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any, assert_never

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

from ....shared.messages import ModelInfo
from ..capacity import Capacity
from ..loaded_model import LoadedModel, ModelError
from ..sampling.filters import Row
from ..sampling.log_probs import LogProbs
from ..sampling.sampler import Sampler
from ..sequence import NewSequence, SequenceId
from ..step import (
    Aborted,
    Clear,
    Copy,
    Decoded,
    Discard,
    Edit,
    Failed,
    Load,
    NoRoom,
    NotLoaded,
    Outcome,
    Park,
    Restore,
    Run,
    Step,
)
from .batch import Batch
from .embedding import LlamaEmbedding
from .encoder import EncoderEngine
from .grammar_tokens import grammar_tokens
from .log import route_log
from .model import Model

logger = logging.getLogger(__name__)

State = NDArray[np.uint8]

MAX_BATCH = 512
"""Most tokens of one step: so many does llama.cpp compute at once, more it would only cut up."""

ATTENTION_TILE = 64
"""Tokens of a batch from which on llama.cpp's attention on processors works by tiles."""

MOST_SCORED = 64
"""Tokens of prompts that a step can explain: each takes a row of logits, and large vocabularies
have rows of half a megabyte."""

NUM_MASK_THREADS = 2
"""Masks are worked out while the engine's own threads decode, and take little of their time."""

_END = -1
"""In llama.cpp's ranges of positions: to the end."""


class _CannotGenerateError(ModelError):
    """The model has no KV cache: it reads a text as a whole."""


class LlamaEngine:
    """`engine.Engine` over a loaded model."""

    def __init__(
        self,
        model: Model,
        *,
        slots: int,
        context_size: int,
        kv_cells: int,
        host_cache: int,
        threads: int,
        max_draft: int,
    ) -> None:
        most_scored = max(MOST_SCORED, slots)
        num_rows = slots * (1 + max_draft) + most_scored
        self._model = model
        self._context = _open_context(model, kv_cells, slots, threads, num_rows)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = Batch(llama_cpp.llama_n_batch(self._context))
        self._spare = slots
        self._parked: dict[int, State] = {}
        self._warm_up()
        self.capacity = Capacity(
            batch_size=llama_cpp.llama_n_batch(self._context),
            most_mixed=MAX_BATCH if model.is_offloaded else ATTENTION_TILE - 1,
            num_cells=kv_cells,
            num_holders=llama_cpp.llama_max_parallel_sequences() - 1,
            can_share=model.can_share,
            can_shift=model.can_share and llama_cpp.llama_memory_can_shift(self._memory),
            most_parked=host_cache // self._state_size(0),
            is_compact=not model.is_offloaded,
            max_draft=max_draft,
            most_scored=most_scored,
        )
        llama_cpp.llama_memory_clear(self._memory, True)
        self._samplers: dict[SequenceId, Sampler] = {}
        self._rows = _Rows(num_rows, model.vocab.size)
        self.model = LoadedModel(
            ModelInfo(
                name=model.path.stem,
                architecture=model.architecture,
                parameters=model.parameters,
                size_bytes=model.size_bytes,
                context_size=context_size,
                tasks=model.tasks(generates=True),
            ),
            model.vocab,
            model.chat_template,
            grammar_tokens(model.vocab),
            model.tool_template,
            LlamaEmbedding(model, context_size=context_size, threads=threads, has_memory=True),
        )
        self._mask_threads = ThreadPoolExecutor(NUM_MASK_THREADS, thread_name_prefix="mask")

    def open(self, sequence: NewSequence) -> None:
        """Make the sampler of `sequence`."""
        constraint = sequence.constraint
        course = constraint.begin(self._mask_threads.submit) if constraint else None
        self._samplers[sequence.id] = Sampler(sequence, self._model.vocab, course)

    def failure(self, sequence_id: SequenceId) -> str | None:
        """See `Engine`."""
        return self._samplers[sequence_id].failure

    def close(self, sequence_id: SequenceId) -> None:
        """Forget its sampler; nothing happens where there is none any more."""
        self._samplers.pop(sequence_id, None)

    def execute(self, step: Step) -> Outcome:
        """Edit the cells, decode, choose."""
        not_loaded = [
            e.slot for e in step.edits if not self._edit(e) and isinstance(e, Load | Restore)
        ]
        if not_loaded:
            return NotLoaded(tuple(not_loaded))
        if not step.runs:
            return Decoded(())
        self._batch.fill(step.runs)
        code = llama_cpp.llama_decode(self._context, self._batch.raw)
        if code != 0:
            return _failure(code)
        return self._read_rows(step.runs)

    def free(self) -> None:
        """Free context and model."""
        self._mask_threads.shutdown()
        llama_cpp.llama_free(self._context)
        self._model.free()

    def save(self, slot: int, length: int) -> bytes:
        """See `Engine`."""
        if self.capacity.max_draft:
            llama_cpp.llama_memory_seq_rm(self._memory, slot, length, _END)
        return self._state(slot).tobytes()

    def _edit(self, edit: Edit) -> bool:
        """Whether it worked."""
        memory = self._memory
        match edit:
            case Clear(holder, start):
                if not start:
                    self._parked.pop(holder, None)
                llama_cpp.llama_memory_seq_rm(memory, self._number(holder), start, _END)
            case Copy(source, holder, length):
                numbers = self._number(source), self._number(holder)
                llama_cpp.llama_memory_seq_cp(memory, *numbers, 0, length)
            case Discard(slot, start, count):
                llama_cpp.llama_memory_seq_rm(memory, slot, start, start + count)
                llama_cpp.llama_memory_seq_add(memory, slot, start + count, _END, -count)
            case Load(slot, stored, length):
                state = np.frombuffer(stored.state, np.uint8)
                return self._load(slot, state, len(stored.tokens), length)
            case Park(holder):
                self._park(holder)
            case Restore(source, slot, length):
                return self._load(slot, self._parked[source], None, length)
            case _:
                assert_never(edit)
        return True

    def _warm_up(self) -> None:
        """Decode a token, so that the first request does not pay for reading the weights.

        Raises `ModelError` when even that does not work. Leaves its cell to slot 0.
        """
        llama_cpp.llama_set_warmup(self._context, True)
        outcome = self.execute(Step((), (Run(SequenceId(0), 0, 0, (0,), False),), 0, 1))
        llama_cpp.llama_set_warmup(self._context, False)
        if not isinstance(outcome, Decoded):
            llama_cpp.llama_free(self._context)
            raise ModelError(f"model file {self._model.path} loads but does not run: {outcome}")

    def _number(self, holder: int) -> int:
        """llama.cpp's `seq_id` of a holder."""
        return holder if holder < self._spare else holder + 1

    def _state_size(self, holder: int) -> int:
        """Bytes."""
        return int(llama_cpp.llama_state_seq_get_size(self._context, holder))

    def _state(self, holder: int) -> State:
        """What the cells of `holder` contain, in llama.cpp's own format."""
        state = np.empty(self._state_size(holder), np.uint8)
        written = llama_cpp.llama_state_seq_get_data(
            self._context, _pointer(state), state.size, holder
        )
        return state[:written]

    def _park(self, holder: int) -> None:
        number = self._number(holder)
        llama_cpp.llama_memory_seq_cp(self._memory, number, self._spare, 0, _END)
        self._parked[holder] = self._state(self._spare)
        for one in (number, self._spare):
            llama_cpp.llama_memory_seq_rm(self._memory, one, 0, _END)

    def _load(self, slot: int, state: State, num_tokens: int | None, length: int) -> bool:
        """Whether `slot` got the first `length` of the cells, `num_tokens` if given, in `state`."""
        size = state.size
        if size and size == llama_cpp.llama_state_seq_set_data(
            self._context, _pointer(state), size, slot
        ):
            num_cells = llama_cpp.llama_memory_seq_pos_max(self._memory, slot) + 1
            if num_cells >= length and num_tokens in (None, num_cells):
                llama_cpp.llama_memory_seq_rm(self._memory, slot, length, _END)
                return True
        llama_cpp.llama_memory_seq_rm(self._memory, slot, 0, _END)
        return False

    def _read_rows(self, runs: tuple[Run, ...]) -> Decoded:
        """Choose, and explain prompts; rows are in the order of `Batch.fill`."""
        runs = tuple(run for run in runs if run.samples or run.scored)
        if not runs:
            return Decoded(())
        rows = self._rows.view(llama_cpp.llama_get_logits(self._context))
        tokens: list[int] = []
        scores: dict[SequenceId, tuple[LogProbs, ...]] = {}
        end = 0
        # One after the other: what each row needs is over before a thread would have woken up.
        for run in runs:
            if run.scored:
                start, end = end, end + len(run.scored)
                scores[run.id] = self._score(run, rows[start:end])
            if run.samples:
                start, end = end, end + 1 + run.num_drafted
                tokens += self._follow(run, rows[start:end])
        return Decoded(tuple(tokens), self._take_log_probs(runs), scores)

    def _take_log_probs(self, runs: tuple[Run, ...]) -> dict[SequenceId, tuple[LogProbs, ...]]:
        """Of what was just chosen, by sequence; of those that ask for them."""
        taken = {run.id: self._samplers[run.id].take_log_probs() for run in runs if run.samples}
        return {id: log_probs for id, log_probs in taken.items() if log_probs}

    def _score(self, run: Run, rows: Iterable[Row]) -> tuple[LogProbs, ...]:
        score = self._samplers[run.id].score
        return tuple(map(score, rows, run.scored))

    def _follow(self, run: Run, rows: Iterable[Row]) -> Iterator[int]:
        """Choose along the draft, up to the first token that differs, or the one after it."""
        sampler = self._samplers[run.id]
        for row, drafted in zip_longest(rows, run.draft):
            token = sampler.choose(row)
            yield token
            if token != drafted:
                return


class _Rows:
    """llama.cpp's logits where they lie: a row for each output of the last step, in its order.

    The buffer moves only to grow, so one view of it serves many steps. It holds the rows of the
    last step, which may be fewer than the view shows.
    """

    def __init__(self, num_rows: int, vocab_size: int) -> None:
        self._shape = (num_rows, vocab_size)
        self._address = 0
        self._view = np.empty((0, vocab_size), np.float32)

    def view(self, first: Any) -> NDArray[np.float32]:
        address = ctypes.addressof(first.contents)
        if address != self._address:
            self._address = address
            self._view = np.ctypeslib.as_array(first, self._shape)
        return self._view


def load_engine(
    path: Path,
    *,
    slots: int,
    context_size: int,
    kv_cells: int | None = None,
    host_cache: int = 0,
    threads: int,
    gpu_layers: int,
    speculate: int = 0,
) -> LlamaEngine | EncoderEngine:
    """Load the model at `path` and make it ready to run; see `LoadEngine`. Raises `ModelError`."""
    most = llama_cpp.llama_max_parallel_sequences() - 1
    if slots > most:
        raise ModelError(f"llama.cpp runs at most {most} sequences at once: lower --slots {slots}")
    model = Model(path, gpu_layers=gpu_layers)
    if speculate and not model.can_share:
        logger.warning(
            "--speculate %d is without effect: %s is a model whose sequences cannot give up their "
            "last tokens",
            speculate,
            path,
        )
    try:
        engine = LlamaEngine(
            model,
            slots=slots,
            context_size=context_size,
            kv_cells=kv_cells or slots * context_size,
            host_cache=host_cache,
            threads=threads,
            max_draft=speculate if model.can_share else 0,
        )
    except _CannotGenerateError:
        return EncoderEngine(model, context_size=context_size, threads=threads)
    except ModelError:
        model.free()
        raise
    _warn_of_long_context(model, context_size)
    return engine


def _open_context(model: Model, num_cells: int, slots: int, threads: int, num_rows: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = num_cells  # llama.cpp rounds up to whole 256
    params.n_batch = params.n_ubatch = max(MAX_BATCH, slots)
    params.n_seq_max = slots + 1  # with the spare one
    params.n_outputs_max = num_rows  # of logits: it bounds their buffer
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = True
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
    with route_log().hold_errors() as errors:
        context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise ModelError(
            f"model file {model.path} loads, but not with a KV cache of {num_cells} cells "
            f"(--kv-cells): lower it, --slots or --context-size ({'; '.join(errors)})"
        )
    if not llama_cpp.llama_get_memory(context):
        llama_cpp.llama_free(context)
        raise _CannotGenerateError(model.path)
    return context


def _warn_of_long_context(model: Model, context_size: int) -> None:
    if context_size > model.trained_context:
        logger.warning(
            "--context-size %d is more than the %d tokens that %s was trained for: answers may "
            "lose their sense beyond that",
            context_size,
            model.trained_context,
            model.path,
        )


def _pointer(state: State) -> Any:
    return ctypes.cast(state.ctypes.data, ctypes.POINTER(ctypes.c_uint8))


def _failure(code: int) -> Outcome:
    """What a `llama_decode` answer other than 0 means."""
    match code:
        case 1:
            return NoRoom()
        case 2:
            return Aborted()
        case -1:
            return Failed("llama.cpp refused the batch as invalid")
        case _:
            return Failed(f"llama.cpp could not compute the batch (code {code})")
