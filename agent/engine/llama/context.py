"""The llama.cpp context that generates: opened, warmed up, decoded with, freed.

A context belongs to the thread that made it.
"""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llama_cpp.llama_cpp as llama_cpp
import numpy as np

from ....shared.models.engine_options import CacheType
from ..load_options import LoadOptions
from ..model_error import ModelError
from ..sequence import SequenceId
from ..step import Aborted, Failed, NoRoom, Run
from .cells.fixed_batches import MOST_ROWS, FixedBatch
from .log import route_log
from .model import Model, load_error


class Batch:
    """A batch of up to `size` tokens. `raw` is the argument of `llama_decode`.

    NumPy owns the memory, and llama.cpp gets pointers into the memory, laid out once. Each token
    belongs to one sequence, so a step only writes tokens, positions, sequence ids and which logits
    it needs.
    """

    def __init__(self, size: int) -> None:
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._slots = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)
        first = self._slots.ctypes.data
        self._slot_pointers = (first + self._slots.itemsize * np.arange(size)).astype(np.uintp)
        self.raw = llama_cpp.llama_batch(
            n_tokens=0,
            token=pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=pointer(self._positions, ctypes.c_int32),
            n_seq_id=pointer(self._counts, ctypes.c_int32),
            seq_id=pointer(self._slot_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(self._outputs, ctypes.c_int8),
        )

    def fill(
        self,
        runs: Sequence[Run],
        number: Callable[[int], int] = int,
        position: Callable[[int, int], int] | None = None,
    ) -> None:
        """Write `runs`; `number` maps a slot to its `seq_id`, `position` a cell to its position."""
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        outputs: list[int] = []
        for run in runs:
            count = len(run.tokens)
            first = len(tokens) + run.first_scored
            outputs += range(first, first + len(run.scored))
            tokens += run.tokens
            start = run.start if position is None else position(run.slot, run.start)
            positions += range(start, start + count)
            slots += [number(run.slot)] * count
            if run.samples:
                outputs += range(len(tokens) - 1 - run.num_drafted, len(tokens))
        self.fill_rows(tokens, positions, slots, outputs)

    def fill_rows(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        numbers: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        """Write rows with token, position and `seq_id`; `outputs` are the rows with logits."""
        size = len(tokens)
        self._tokens[:size] = tokens
        self._positions[:size] = positions
        self._slots[:size] = numbers
        self._outputs[:size] = 0
        self._outputs[list(outputs)] = 1
        self.raw.n_tokens = size


def pointer(array: np.ndarray[Any, Any], kind: Any) -> Any:
    """Return a pointer to the beginning of `array`, which must outlive it."""
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


_FEW = 16
"""The number of tokens of a context that computes nothing."""

_CHUNKED = frozenset({"llama4"})
"""Architectures whose windows begin with a chunk, so a window cannot be checked to be complete."""

_should_stop = llama_cpp.ggml_abort_callback(("strlen", ctypes.CDLL(None)))
"""llama.cpp calls this after each operation of a step, with a text; an empty text means go on.

The function is a C function, since a Python function would have to wait for the interpreter each
time.
"""


_OF_CACHE_TYPES = re.compile(r"cache types?\b|V cache")
"""Matches llama.cpp's errors about cache types that do not fit the model or each other."""


class CannotGenerateError(ModelError):
    """The model has no KV cache: it processes a text as a whole."""


class Context:
    """Computes runs of sequences, one per slot and a spare one, in `num_cells` cells.

    With `num_streams` the cells are divided among that many `seq_id`s, without a spare one. A
    deterministic context computes batches of at most `MOST_ROWS` rows. `num_checkpoints` further
    `seq_id`s have a row of recurrent state each. Each row also keeps the states of the last
    `num_rollback` tokens, so that a sequence can drop these tokens. With `has_small_windows`,
    layers with a sliding window have cells only for the windows of the slots. With `is_mtp` the
    context computes only the MTP layers (`mtp`).

    `handle` and `memory` are llama.cpp's. A step gives at most `num_rows` rows of logits. Raises
    `ModelError` if the context cannot be created, or cannot decode.
    """

    def __init__(
        self,
        model: Model,
        options: LoadOptions,
        *,
        num_cells: int,
        num_rows: int,
        num_streams: int = 0,
        num_checkpoints: int = 0,
        num_rollback: int = 0,
        has_small_windows: bool = False,
        is_mtp: bool = False,
    ) -> None:
        params = _params(options, num_cells=num_cells, num_rows=num_rows, num_streams=num_streams)
        params.swa_full = not has_small_windows
        if is_mtp:
            params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        params.n_seq_max += num_checkpoints
        params.n_rs_seq = num_rollback
        params.n_outputs_max = max(params.n_outputs_max, params.n_seq_max)
        self.handle = _open(model, params, options)
        self._log = route_log()
        self.memory = llama_cpp.llama_get_memory(self.handle)
        self._stop = ctypes.create_string_buffer(2)
        llama_cpp.llama_set_abort_callback(self.handle, _should_stop, self._stop)
        self.batch_size = int(llama_cpp.llama_n_batch(self.handle))
        self._batch = Batch(self.batch_size)
        self._warm_up(model)

    @property
    def can_shift(self) -> bool:
        """Return whether cells can move to other positions."""
        return bool(llama_cpp.llama_memory_can_shift(self.memory))

    @property
    def logits(self) -> Any:
        """llama.cpp's pointer to the rows of the last step."""
        return llama_cpp.llama_get_logits(self.handle)

    def decode(
        self,
        runs: Sequence[Run],
        number: Callable[[int], int] = int,
        position: Callable[[int, int], int] | None = None,
    ) -> NoRoom | Aborted | Failed | None:
        """Compute `runs` as one batch; return the failure, if any.

        `number` returns the `seq_id` of a slot. `position` returns llama.cpp's position of one of
        the slot's cells; by default it is the cell's number.
        """
        self._batch.fill(runs, number, position)
        return self.decode_raw(self._batch.raw)

    def decode_fixed(self, batch: FixedBatch) -> NoRoom | Aborted | Failed | None:
        """Compute `batch` and remove its filling cells; return the failure, if any."""
        self._batch.fill_rows(batch.tokens, batch.positions, batch.streams, batch.outputs)
        failure = self.decode_raw(self._batch.raw)
        for stream, start in batch.fillings:
            llama_cpp.llama_memory_seq_rm(self.memory, stream, start, -1)
        return failure

    def length(self, stream: int) -> int:
        """Return the number of cells of a stream."""
        return int(llama_cpp.llama_memory_seq_pos_max(self.memory, stream)) + 1

    def decode_raw(self, batch: Any, *, is_whole: bool = False) -> NoRoom | Aborted | Failed | None:
        """Compute one of llama.cpp's batches; return the failure, if any.

        `is_whole`: every position attends to all others of its sequence.
        """
        if is_whole:
            llama_cpp.llama_set_causal_attn(self.handle, False)
        code = llama_cpp.llama_decode(self.handle, batch)
        if is_whole:
            llama_cpp.llama_set_causal_attn(self.handle, True)
        return None if code == 0 else _failure(code)

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Set the threads from the next batch on; call this between two batches."""
        llama_cpp.llama_set_n_threads(self.handle, threads, threads_batch)

    def stop(self, is_wanted: bool) -> None:
        """Abort running and further steps (`Aborted`) while `is_wanted`.

        Thread-safe. Steps on a GPU cannot be aborted.
        """
        self._log.is_calm = is_wanted  # llama.cpp takes it for an error
        self._stop[0] = b"\x01" if is_wanted else b"\x00"

    def clear(self) -> None:
        """Free all cells and erase their contents."""
        llama_cpp.llama_memory_clear(self.memory, True)

    def free(self) -> None:
        """Free the memory; nothing may be called afterwards."""
        llama_cpp.llama_free(self.handle)

    def _warm_up(self, model: Model) -> None:
        """Decode a token, so that the first request does not pay for reading the weights.

        The token's cell stays in slot 0.
        """
        llama_cpp.llama_set_warmup(self.handle, True)
        failure = self.decode((Run(SequenceId(0), 0, 0, (0,), False),))
        llama_cpp.llama_set_warmup(self.handle, False)
        if failure is not None:
            self.free()
            raise ModelError(f"model file {model.path} loads but does not run: {failure}")


def can_take_back(model: Model) -> bool:
    """Return whether a sequence can drop draft tokens that were not accepted.

    Layers with a sliding window still have the cells of the last step. Recurrent layers need the
    states before the draft tokens: llama.cpp keeps these states for some architectures, and a
    context says if it does. In models with both kinds of layers, cells behind a window may be lost
    with a part of the step.
    """
    if model.can_share:
        return True
    if not model.has_checkpoints or model.architecture in _CHUNKED:
        return False
    return not model.is_recurrent or (not model.window and _keeps_states(model))


def _keeps_states(model: Model) -> bool:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = _FEW
    params.n_rs_seq = 1
    with model.adapters_guard, route_log().hold_errors():
        context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        return False
    num_kept = int(llama_cpp.llama_n_rs_seq(context))
    llama_cpp.llama_free(context)
    return num_kept > 0


_FLASH_ATTENTION = {
    "auto": llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_ROPE_SCALING = {
    "none": llama_cpp.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN,
}
_CACHE_TYPES: Mapping[CacheType, int] = {
    "f32": llama_cpp.GGML_TYPE_F32,
    "f16": llama_cpp.GGML_TYPE_F16,
    "bf16": 30,  # llama-cpp-python has no name for it
    "q8_0": llama_cpp.GGML_TYPE_Q8_0,
    "q4_0": llama_cpp.GGML_TYPE_Q4_0,
    "q4_1": llama_cpp.GGML_TYPE_Q4_1,
    "iq4_nl": llama_cpp.GGML_TYPE_IQ4_NL,
    "q5_0": llama_cpp.GGML_TYPE_Q5_0,
    "q5_1": llama_cpp.GGML_TYPE_Q5_1,
}


def context_params(options: LoadOptions) -> Any:
    """Return llama.cpp's defaults, changed by `options`.

    A model can have two contexts, for generation and for embeddings. Both begin with these
    parameters, and each sets the parameters that differ.
    """
    params = llama_cpp.llama_context_default_params()
    params.n_threads = options.threads
    params.n_threads_batch = options.threads_batch or options.threads
    params.n_batch = max(options.step_tokens, options.slots)
    params.n_ubatch = options.ubatch_size
    params.offload_kqv = options.kv_offload
    params.op_offload = options.op_offload
    params.flash_attn_type = _FLASH_ATTENTION[options.flash_attn]
    params.type_k = _CACHE_TYPES[options.cache_type_k]
    params.type_v = _CACHE_TYPES[options.cache_type_v]
    if options.rope_scaling is not None:
        params.rope_scaling_type = _ROPE_SCALING[options.rope_scaling]
    if options.rope_scale is not None:
        params.rope_freq_scale = 1 / options.rope_scale
    params.rope_freq_base = options.rope_freq_base or 0  # 0 is the model's own
    params.yarn_orig_ctx = options.yarn_orig_ctx or 0
    params.yarn_ext_factor = _or_own(options.yarn_ext_factor)
    params.yarn_attn_factor = _or_own(options.yarn_attn_factor)
    params.yarn_beta_slow = _or_own(options.yarn_beta_slow)
    params.yarn_beta_fast = _or_own(options.yarn_beta_fast)
    return params


def _or_own(factor: float | None) -> float:
    """Return `factor`, or the negative number that stands for the model's own factor."""
    return -1.0 if factor is None else factor


def _params(options: LoadOptions, *, num_cells: int, num_rows: int, num_streams: int) -> Any:
    params = context_params(options)
    params.n_ctx = num_cells  # llama.cpp rounds up to whole 256, for each stream
    if options.deterministic:
        params.n_ubatch = MOST_ROWS
    params.n_seq_max = num_streams or options.slots + 1  # with the spare one
    params.n_outputs_max = num_rows  # of logits: it bounds their buffer
    params.kv_unified = not num_streams
    return params


def _open(model: Model, params: Any, options: LoadOptions) -> Any:
    with model.adapters_guard, route_log().hold_errors() as errors:
        context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise _refusal(model, params, options, errors)
    if not llama_cpp.llama_get_memory(context):
        llama_cpp.llama_free(context)
        raise CannotGenerateError(model.path)
    return context


def _refusal(model: Model, params: Any, options: LoadOptions, errors: Sequence[str]) -> ModelError:
    reasons = "; ".join(errors)
    if _OF_CACHE_TYPES.search(reasons):
        return ModelError(
            f"model file {model.path} does not work with --cache-type-k {options.cache_type_k} and "
            f"--cache-type-v {options.cache_type_v}: choose f16 for both, or another type "
            f"({reasons})"
        )
    return load_error(
        f"model file {model.path} loads, but not with a KV cache of {params.n_ctx} cells "
        f"(--kv-cells): lower it, --slots or --context-size ({reasons})",
        errors,
    )


def _failure(code: int) -> NoRoom | Aborted | Failed:
    """Return the meaning of a `llama_decode` result other than 0."""
    match code:
        case 1:
            return NoRoom()
        case 2:
            return Aborted()
        case -1:
            return Failed("llama.cpp refused the batch as invalid")
        case _:
            return Failed(f"llama.cpp could not compute the batch (code {code})")
