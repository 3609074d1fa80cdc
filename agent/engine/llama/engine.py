"""llama.cpp as the worker's engine: one context, one batch, one sampler per sequence.

The KV cache has one of two layouts (`layout`): one cache for all, in which prefixes are shared by
reference, or a stream for each slot. The context belongs to the thread that made it.
"""

import logging
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp

from ....shared.reports.model_info import ModelInfo
from ...thread_pool import thread_pool
from ..capacity import BLOCK, Capacity
from ..load_options import LoadOptions
from ..loaded_model import LoadedModel
from ..prompt_store.stored_prompt import State
from ..sampling.sampler import Sampler
from ..sampling.weights import Scratch
from ..sequence import NewSequence, SequenceId
from ..step import Aborted, Decoded, Failed, NoRoom, NotLoaded, Outcome, Run, Step
from .adapters.adapters import Adapters
from .cells.edits import Cells, Edits
from .cells.fixed_batches import MOST_ROWS
from .cells.layout import Layout
from .cells.places import Places
from .cells.recurrent_rows import num_rows
from .cells.states import States
from .cells.stream_cells import StreamCells
from .cells.unified_cells import UnifiedCells
from .context import Context
from .determinism import FixedSteps, checked_tokens
from .draft_model import LlamaDraftModel
from .embedding import LlamaEmbedding
from .media.encoded import EncodedMedia, MediaBatch, Rows
from .media.projector import Projector
from .model import Model
from .mtp import LlamaMtp, load_mtp
from .rows import RowReader
from .vocab import grammar_tokens

logger = logging.getLogger(__name__)

ATTENTION_TILE = 64
"""Minimum tokens of a batch for which llama.cpp's attention on CPUs uses tiles."""

MOST_SCORED = 64
"""Maximum prompt tokens per step with log-probabilities.

Each such token takes a row of logits: half a megabyte with a large vocabulary.
"""

CHECKPOINT_GAP = 32
"""Minimum tokens between two checkpoints of a prompt, since fewer are quickly computed again."""

FAR = 2**24
"""A position behind all positions of sequences."""

MOST_WINDOW_BYTES = 16 * 2**20
"""Default maximum bytes of a window copied for a checkpoint; the copy takes milliseconds."""

LEAST_WINDOWS = 8
"""Minimum windows per slot that host memory must hold; otherwise windows stay in the KV cache."""

NUM_MASK_THREADS = 2
"""Threads that compute grammar masks while the engine decodes; they take little of its time."""


class LlamaEngine:
    """`engine.Engine` over a loaded model."""

    def __init__(
        self,
        model: Model,
        options: LoadOptions,
        *,
        layout: Layout,
        projector: Projector | None = None,
        draft_model: LlamaDraftModel | None = None,
    ) -> None:
        self._model = model
        self._projector = projector
        most_scored = max(MOST_SCORED, options.slots)
        num_rows = options.slots * (1 + options.max_draft) + most_scored
        checkpoints = _checkpoints(model, options, layout.num_cells)
        if options.deterministic:
            num_rows = max(MOST_ROWS, layout.num_streams)
        self._context = Context(
            model,
            options,
            num_cells=layout.num_cells,
            num_rows=num_rows,
            num_streams=layout.num_streams,
            num_checkpoints=checkpoints.most if model.is_recurrent else 0,
            num_rollback=options.max_draft if model.is_recurrent else 0,
            has_small_windows=checkpoints.have_small_windows,
        )
        self._mtp: LlamaMtp | None = None
        if options.max_draft and draft_model is None:
            self._mtp = load_mtp(model, self._context, options, num_cells=layout.num_cells)
        self.draft_model: LlamaDraftModel | LlamaMtp | None = draft_model or self._mtp
        # Cells of pictures with places in two dimensions have positions of their own.
        self._places = Places() if projector is not None and projector.has_grid else None
        self._media: dict[SequenceId, dict[bytes, EncodedMedia]] = {}
        self._edits = Edits(
            _cells(
                self._context,
                model,
                options.slots,
                layout,
                self._places,
                blank=self._blank(options.slots) if checkpoints.can_move else b"",
                are_windows_apart=checkpoints.have_small_windows,
            )
        )
        self.capacity = self._measured(options, layout, checkpoints, most_scored)
        self._context.clear()
        self._adapters = Adapters(model.handle, model.adapters_guard)
        self._samplers: dict[SequenceId, Sampler] = {}
        self._scratch = Scratch()  # of the thread that chooses
        self._rows = RowReader(
            self._context, self._samplers, num_rows=num_rows, vocab_size=model.vocab.size
        )
        self._fixed = (
            FixedSteps(self._context, self._rows, num_streams=layout.num_streams)
            if options.deterministic
            else None
        )
        self._embedding = LlamaEmbedding(model, options, has_memory=True)
        self.model = self._described(options, layout)
        self._mask_threads = thread_pool(NUM_MASK_THREADS, "mask")

    def _measured(
        self, options: LoadOptions, layout: Layout, checkpoints: "_Checkpoints", most_scored: int
    ) -> Capacity:
        """Return the capacity of steps.

        Decodes a token or two, so the caller must clear the context afterwards.
        """
        model = self._model
        can_park = self._places is None
        if checkpoints.can_move:
            state_bytes, cell_bytes = self._checkpoint_bytes()
            most_parked = options.host_cache - checkpoints.most * checkpoints.host_bytes
        else:
            state_bytes = 0
            cell_bytes = States(self._context).size(0) if model.can_share else 0  # of the warm-up
            most_parked = options.host_cache // cell_bytes if self._can_park else 0
        most_mixed = MOST_ROWS - 1 if options.deterministic else ATTENTION_TILE - 1
        return Capacity(
            batch_size=self._context.batch_size,
            most_mixed=self._context.batch_size if model.is_offloaded else most_mixed,
            num_cells=layout.num_cells,
            num_holders=_num_holders(options.slots, layout)
            if model.can_share
            else options.slots + checkpoints.most,
            num_streams=layout.num_streams,
            can_share=model.can_share,
            can_shift=model.can_share and self._context.can_shift,
            most_parked=max(0, most_parked) if can_park else 0,
            checkpoint_gap=CHECKPOINT_GAP if checkpoints.most else 0,
            state_bytes=state_bytes,
            window=0 if model.is_recurrent or checkpoints.have_small_windows else model.window,
            copies_state=checkpoints.have_small_windows,
            cell_bytes=cell_bytes,
            is_compact=not model.is_offloaded,
            max_draft=options.max_draft,
            most_scored=most_scored,
        )

    def _described(self, options: LoadOptions, layout: Layout) -> LoadedModel:
        """Return the description of the model and its companions for the rest of the agent."""
        model, projector, draft = self._model, self._projector, self.draft_model
        info = ModelInfo(
            name=model.name,
            architecture=model.architecture,
            parameters=model.parameters,
            size_bytes=model.size_bytes,
            quantization=model.quantization,
            context_size=options.slot_tokens,
            tasks=model.tasks(generates=True, senses=() if projector is None else projector.senses),
            longest_token=model.vocab.longest_token,
            kernels=model.kernels,
            kv_layout=layout.name,
            draft_model=None if draft is None else draft.name,
            deterministic=options.deterministic,
        )
        return LoadedModel(
            info,
            model.vocab,
            model.chat_template,
            grammar_tokens(model.vocab),
            model.tool_template,
            self._embedding,
            projector,
            None if draft is None else draft.num_cells,
            self.capacity.cell_bytes if self._can_park or self._can_hand_out else None,
            self.capacity.state_bytes if self._can_hand_out else 0,
            arithmetic=None
            if self._fixed is None
            else self._fixed.arithmetic(checked_tokens(model.vocab.size, options.slot_tokens)),
            has_checkpoints=model.has_checkpoints,
        )

    @property
    def _can_park(self) -> bool:
        """Return whether cells can be offloaded to host memory.

        Cells of pictures with positions in two dimensions cannot be offloaded.
        """
        return self._model.can_share and self._places is None

    @property
    def _can_hand_out(self) -> bool:
        """Return whether checkpoints can be sent to other agents, and be written to disk."""
        return bool(self.capacity.state_bytes and self.capacity.most_parked)

    def _blank(self, spare: int) -> State:
        """Return the uncuttable state of an empty sequence.

        The state is an empty recurrent state, or the window of a token behind all positions in
        use.
        """
        if not self._model.is_recurrent:
            self._context.decode((Run(SequenceId(0), spare, FAR, (0,), False),))
        return States(self._context, are_apart=True).read(spare)

    def _checkpoint_bytes(self) -> tuple[int, int]:
        """Return the maximum bytes of a checkpoint's uncuttable state, and of a cell's attention.

        The bytes of a block's head and of the blank are divided among the block's cells.
        """
        states, states_apart = States(self._context), States(self._context, are_apart=True)
        whole, apart = states.size(0), states_apart.size(0)  # of the warm-up's one cell
        self._context.decode((Run(SequenceId(0), 0, 1, (0,), False),))
        more_whole, more_apart = states.size(0), states_apart.size(0)
        window = max(0, self._model.window - 1) * (more_apart - apart)
        cell = more_whole - more_apart - whole + apart
        head = whole - apart - cell
        blank = 0 if self._model.is_recurrent else apart  # the window of a single token
        return apart + window, cell + ceil((head + blank) / BLOCK)

    def open(self, sequence: NewSequence) -> None:
        """Make the sampler of `sequence`, encode its media, and reserve its adapters.

        Raises `ModelNotFound` if the adapters are gone.
        """
        self._adapters.open(sequence.id, sequence.prompt.adapter)
        if sequence.prompt.has_media:
            self._media[sequence.id] = self._encoded(sequence)
        constraint = sequence.constraint
        state = constraint.begin(self._mask_threads.submit) if constraint else None
        self._samplers[sequence.id] = Sampler(
            sequence, self._model.vocab, state, scratch=self._scratch
        )
        if self._mtp is not None:
            self._mtp.follow(sequence.id)

    def failure(self, sequence_id: SequenceId) -> str | None:
        """Return why an open sequence's tokens are no valid answer; `None` if they are valid."""
        return self._samplers[sequence_id].failure

    def close(self, sequence_id: SequenceId) -> None:
        """Release the sequence's sampler, media and adapters, if there are any."""
        self._adapters.close(sequence_id)
        self._samplers.pop(sequence_id, None)
        self._media.pop(sequence_id, None)
        if self._mtp is not None:
            self._mtp.forget(sequence_id)

    def execute(self, step: Step) -> Outcome:
        """Carry out a step: edit the cells, decode, choose tokens."""
        edited = self._edits.carry_out(step.edits)
        if edited.not_loaded:
            return NotLoaded(edited.not_loaded)
        decoded = self._computed(step)
        if not isinstance(decoded, Decoded):
            return decoded
        if not step.edits:
            return decoded
        return replace(decoded, saved=edited.saved, move_seconds=edited.move_seconds)

    def stop(self, is_wanted: bool) -> None:
        """Abort the running step if possible (`Aborted`), until this is called with `False`."""
        self._context.stop(is_wanted)

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Set the threads for steps of one token, and for larger steps, from now on.

        A projector keeps its number of threads, since mtmd cannot change it.
        """
        if self._fixed is not None:
            return
        self._context.use_threads(threads, threads_batch)
        if self.draft_model is not None:
            self.draft_model.use_threads(threads, threads_batch)
        self._embedding.threads = (threads, threads_batch)

    def load_adapter(self, digest: str, path: Path, turn: AbstractContextManager[object]) -> None:
        """Load the adapter at `path`, whose file has this `digest`; raises `ModelError`."""
        self._adapters.load(digest, path, turn)

    def keep_adapters(self, digests: Collection[str], turn: AbstractContextManager[object]) -> None:
        """Unload all other adapters, as soon as no open sequence uses them."""
        self._adapters.keep(digests, turn)

    def _computed(self, step: Step) -> Decoded | NoRoom | Aborted | Failed:
        if not step.runs:
            return Decoded(())
        if self._fixed is None:
            return self._decode(step) or self._rows.read(step.runs)
        self._adapters.apply(self._context.handle, step.adapter)
        rows = self._fixed.compute(step.runs, self._edits.number)
        if isinstance(rows, Aborted | Failed):
            return rows
        return self._rows.read(step.runs, rows)

    def _decode(self, step: Step) -> NoRoom | Aborted | Failed | None:
        self._adapters.apply(self._context.handle, step.adapter)
        if step.runs[0].media is not None:
            batch = MediaBatch([*map(self._rows_of, step.runs)])
            return self._context.decode_raw(batch.raw, is_whole=step.is_whole)
        position = None if self._places is None else self._places.position
        failure = self._context.decode(step.runs, self._edits.number, position)
        if failure is None and self._mtp is not None:
            self._mtp.take(step.runs)
        return failure

    def _encoded(self, sequence: NewSequence) -> dict[bytes, EncodedMedia]:
        if self._projector is None:
            raise ValueError("media without a projector")
        encode = self._projector.encode
        return {media.digest: encode(media) for media in sequence.prompt.media}

    def _rows_of(self, run: Run) -> Rows:
        """Return the rows of a run that reads media. A step with media reads nothing else."""
        if run.media is None:
            raise ValueError("a step with media also has tokens")
        part = run.media
        media = self._media[run.id][part.media.digest]
        start = run.start - part.first
        position = start
        if self._places is not None:
            position = self._places.position(run.slot, start)
            self._places.add(run.slot, start, part.media.num_positions, media.num_advanced)
        return Rows(media, part.first, part.count, self._edits.number(run.slot), position)

    def free(self) -> None:
        """Free context and model."""
        self._mask_threads.shutdown()
        if self.draft_model is not None:
            self.draft_model.free()
        self._context.free()
        if self._projector is not None:
            self._projector.free()
        self._model.free()


def _cells(
    context: Context,
    model: Model,
    slots: int,
    layout: Layout,
    places: Places | None,
    *,
    blank: State,
    are_windows_apart: bool,
) -> Cells:
    if layout.num_streams:
        return StreamCells(context, layout.num_streams)
    window = 0 if model.is_recurrent else model.window
    return UnifiedCells(
        context,
        slots,
        places,
        checked_window=window if model.has_checkpoints else None,
        blank=blank,
        are_windows_apart=are_windows_apart,
    )


@dataclass(frozen=True, slots=True)
class _Checkpoints:
    """The checkpoints of a model: at most `most`, each of `host_bytes` outside the KV cache.

    `have_small_windows`: see `_has_small_windows`. `can_move`: there are some, and the uncuttable
    state is either windows or recurrent states, so it can be copied to host memory.
    """

    most: int = 0
    host_bytes: int = 0
    have_small_windows: bool = False
    can_move: bool = False


def _checkpoints(model: Model, options: LoadOptions, num_cells: int) -> _Checkpoints:
    """Return the checkpoints that llama.cpp's ids and the memory allow.

    Windows and rows of states may use half of the memory for evicted prefixes. If tokens are
    drafted, a row has a state for each drafted token, and one more.
    """
    if not model.has_checkpoints:
        return _Checkpoints()
    most, host_bytes = int(llama_cpp.llama_max_parallel_sequences()) - 1 - options.slots, 0
    if has_small_windows := _has_small_windows(model, options, num_cells):
        host_bytes = model.window_bytes(options)
        fitting = options.host_cache // host_bytes
        most = min(most, max(fitting // 2, min(fitting, options.slots)))
    elif model.is_recurrent:
        row_bytes = model.row_bytes * (1 + options.max_draft)
        host_bytes = 0 if model.is_offloaded else row_bytes
        fitting = num_rows(
            row_bytes,
            slots=options.slots,
            host_cache=options.host_cache // 2,
            is_offloaded=model.is_offloaded,
        )
        most = min(most, fitting)
    can_move = most > 0 and not (model.is_recurrent and model.window)
    return _Checkpoints(most, host_bytes, has_small_windows, can_move)


def _has_small_windows(model: Model, options: LoadOptions, num_cells: int) -> bool:
    """Return whether layers with a sliding window have cells only for the windows of the slots.

    With this layout a checkpoint copies a window while streams wait. So by default it is used only
    for small windows.
    """
    if model.is_recurrent or not model.window:
        return False
    if options.swa_full != "auto":
        return options.swa_full == "off"
    num_window_cells = model.window * (options.slots + 1) + options.ubatch_size
    window_bytes = model.window_bytes(options)
    num_checkpoints = options.host_cache // window_bytes
    return (
        2 * num_window_cells <= num_cells
        and window_bytes <= MOST_WINDOW_BYTES
        and num_checkpoints >= LEAST_WINDOWS * options.slots
    )


def _num_holders(slots: int, layout: Layout) -> int:
    """Return the number of holders; in one cache for all, each needs an id of llama.cpp."""
    most = int(llama_cpp.llama_max_parallel_sequences()) - 1
    return slots + most if layout.num_streams else most
