"""The llama.cpp context that generates: opened, warmed up, decoded with, freed.

It belongs to the thread that made it.
"""

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ..load_options import LoadOptions
from ..model_error import ModelError
from ..sequence import SequenceId
from ..step import Aborted, Failed, NoRoom, Run
from .batch import Batch
from .cells.fixed_batches import MOST_ROWS, FixedBatch
from .context_params import context_params
from .log import route_log
from .model import Model, load_error

_FEW = 16
"""Tokens of a context that computes nothing."""

_CHUNKED = frozenset({"llama4"})
"""Architectures whose windows begin where a chunk does: that one is whole cannot be seen."""

_should_stop = llama_cpp.ggml_abort_callback(("strlen", ctypes.CDLL(None)))
"""Asked by llama.cpp after each operation of a step, about a text: an empty one says go on. It is a
function of C's, since one of Python's would have to wait for the interpreter each time."""


_OF_CACHE_TYPES = re.compile(r"cache types?\b|V cache")
"""In what llama.cpp says of types that do not go with a model, or with each other."""


class CannotGenerateError(ModelError):
    """The model has no KV cache: it processes a text as a whole."""


class Context:
    """Computes runs of sequences, one for each slot and a spare one, in `num_cells` cells.

    With `num_streams` the cells are divided among as many `seq_id`s, of which none is spare. A
    deterministic one computes batches of up to `MOST_ROWS` rows at once. `num_checkpoints` further
    `seq_id`s have a row of recurrent state each. Of each row the states of the last `num_rollback`
    tokens are kept, too, so that a sequence can give up as many. With `has_small_windows` layers
    with a sliding window have cells for the windows of the slots alone. One that `is_mtp` computes
    the layers for that and no others (`mtp`).

    `handle` and `memory` are llama.cpp's. A step gives `num_rows` rows of logits at most. Raises
    `ModelError` where the context cannot be created, or cannot decode.
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
        """Whether cells can move to other positions."""
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
        """Compute `runs` as one batch; what went wrong, if something did.

        `number` gives the `seq_id` of a slot, `position` llama.cpp's of one of its cells: both are
        the same number without it.
        """
        self._batch.fill(runs, number, position)
        return self.decode_raw(self._batch.raw)

    def decode_fixed(self, batch: FixedBatch) -> NoRoom | Aborted | Failed | None:
        """Compute `batch`; what went wrong, if something did. Its filling cells are gone."""
        self._batch.fill_rows(batch.tokens, batch.positions, batch.streams, batch.outputs)
        failure = self.decode_raw(self._batch.raw)
        for stream, start in batch.fillings:
            llama_cpp.llama_memory_seq_rm(self.memory, stream, start, -1)
        return failure

    def length(self, stream: int) -> int:
        """How many cells a stream has."""
        return int(llama_cpp.llama_memory_seq_pos_max(self.memory, stream)) + 1

    def decode_raw(self, batch: Any, *, is_whole: bool = False) -> NoRoom | Aborted | Failed | None:
        """Compute one of llama.cpp's batches.

        `is_whole`: each of its positions looks at all the others of its sequence.
        """
        if is_whole:
            llama_cpp.llama_set_causal_attn(self.handle, False)
        code = llama_cpp.llama_decode(self.handle, batch)
        if is_whole:
            llama_cpp.llama_set_causal_attn(self.handle, True)
        return None if code == 0 else _failure(code)

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Compute with so many from the next batch on; between two of them."""
        llama_cpp.llama_set_n_threads(self.handle, threads, threads_batch)

    def stop(self, is_wanted: bool) -> None:
        """Have the step that runs end as `Aborted`, and each further one, as long as it is wanted.

        From any thread. Steps on a GPU do not heed it.
        """
        self._log.is_calm = is_wanted  # llama.cpp takes it for an error
        self._stop[0] = b"\x01" if is_wanted else b"\x00"

    def clear(self) -> None:
        """Free all cells and erase their contents."""
        llama_cpp.llama_memory_clear(self.memory, True)

    def free(self) -> None:
        """Give the memory back; nothing may be called afterwards."""
        llama_cpp.llama_free(self.handle)

    def _warm_up(self, model: Model) -> None:
        """Decode a token, so that the first request does not pay for reading the weights.

        Leaves its cell to slot 0.
        """
        llama_cpp.llama_set_warmup(self.handle, True)
        failure = self.decode((Run(SequenceId(0), 0, 0, (0,), False),))
        llama_cpp.llama_set_warmup(self.handle, False)
        if failure is not None:
            self.free()
            raise ModelError(f"model file {model.path} loads but does not run: {failure}")


def can_take_back(model: Model) -> bool:
    """Whether a sequence can give up what a step drafted for it in vain.

    Layers with a sliding window have the cells of the last step in any case. Of a recurrent state
    llama.cpp has to keep the last ones, which it can for some architectures; it says so of a
    context. Where there are both, cells behind a window may be gone with a part of the step.
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
            f"model file {model.path} does not go with --cache-type-k {options.cache_type_k} and "
            f"--cache-type-v {options.cache_type_v}: choose f16 for both, or another type "
            f"({reasons})"
        )
    return load_error(
        f"model file {model.path} loads, but not with a KV cache of {params.n_ctx} cells "
        f"(--kv-cells): lower it, --slots or --context-size ({reasons})",
        errors,
    )


def _failure(code: int) -> NoRoom | Aborted | Failed:
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
