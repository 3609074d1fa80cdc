"""A model file made ready to run: its weights, what is loaded beside them, and an engine over both.

What was loaded is freed again where the rest cannot be. A model that cannot generate gets an engine
that only embeds.
"""

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import llama_cpp.llama_cpp as llama_cpp

from ....shared.reports.model_info import Kernels
from ..model_error import ModelError
from .cells.layout import Layout, LayoutChoice, choose_layout
from .context import MAX_BATCH, CannotGenerateError
from .drafts.draft_model import LlamaDraftModel, load_draft_model
from .encoder import EncoderEngine
from .engine import LlamaEngine
from .kernels.kernels import choose
from .media.projector import Projector
from .model import Model

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """As `LoadEngine` has it; `projector` and `draft_model` are files."""

    slots: int
    context_size: int
    kv_cells: int | None
    kv_layout: LayoutChoice
    host_cache: int
    threads: int
    gpu_layers: int
    speculate: int
    projector: Path | None
    draft_model: Path | None
    deterministic: bool


def load_engine(
    path: Path,
    *,
    slots: int,
    context_size: int,
    kv_cells: int | None = None,
    kv_layout: LayoutChoice = "auto",
    host_cache: int = 0,
    threads: int,
    gpu_layers: int,
    kernels: Literal["auto"] | Kernels = "auto",
    speculate: int = 0,
    projector: Path | None = None,
    draft_model: Path | None = None,
    deterministic: bool = False,
) -> LlamaEngine | EncoderEngine:
    """Load the model at `path` and make it ready to run; see `LoadEngine`. Raises `ModelError`."""
    _check(slots)
    model = Model(path, gpu_layers=gpu_layers, kernels=choose(kernels))
    can_draft = bool(speculate) and _can_draft(model, speculate, deterministic=deterministic)
    wanted = _Wanted(
        slots=slots,
        context_size=context_size,
        kv_cells=kv_cells,
        kv_layout=kv_layout,
        host_cache=host_cache,
        threads=threads,
        gpu_layers=gpu_layers,
        speculate=speculate if can_draft else 0,
        projector=projector,
        draft_model=draft_model if can_draft else None,
        deterministic=deterministic,
    )
    try:
        engine = _over(model, wanted)
    except CannotGenerateError:
        return EncoderEngine(model, context_size=context_size, threads=threads)
    except ModelError:
        model.free()
        raise
    _warn_of_long_context(model, context_size)
    return engine


def _check(slots: int) -> None:
    most = llama_cpp.llama_max_parallel_sequences() - 1
    if slots > most:
        raise ModelError(f"llama.cpp runs at most {most} sequences at once: lower --slots {slots}")


def _can_draft(model: Model, speculate: int, *, deterministic: bool) -> bool:
    if deterministic:
        logger.warning("--speculate %d has no effect with --deterministic", speculate)
        return False
    if not model.can_share:
        logger.warning(
            "--speculate %d has no effect: the last tokens of a sequence cannot be removed with %s",
            speculate,
            model.path,
        )
    return model.can_share


def _over(model: Model, wanted: _Wanted) -> LlamaEngine:
    """Raises `ModelError`; then the model is all that is left."""
    with ExitStack() as parts:
        projector = _projector(model, wanted, parts)
        layout = _layout(model, wanted, projector)
        draft_model = _draft_model(model, wanted, layout, parts)
        engine = LlamaEngine(
            model,
            slots=wanted.slots,
            context_size=wanted.context_size,
            layout=layout,
            host_cache=wanted.host_cache,
            threads=wanted.threads,
            max_draft=wanted.speculate,
            projector=projector,
            draft_model=draft_model,
            deterministic=wanted.deterministic,
        )
        parts.pop_all()  # they are the engine's now
    return engine


def _projector(model: Model, wanted: _Wanted, parts: ExitStack) -> Projector | None:
    if wanted.projector is None:
        return None
    projector = Projector(
        wanted.projector,
        model.handle,
        threads=wanted.threads,
        is_offloaded=model.is_offloaded,
        most_at_once=max(MAX_BATCH, wanted.slots),
    )
    parts.callback(projector.free)
    return projector


def _layout(model: Model, wanted: _Wanted, projector: Projector | None) -> Layout:
    return choose_layout(
        wanted.kv_layout,
        slots=wanted.slots,
        context_size=wanted.context_size,
        kv_cells=wanted.kv_cells,
        can_share=model.can_share,
        is_offloaded=model.is_offloaded,
        has_grid=projector is not None and projector.has_grid,
        deterministic=wanted.deterministic,
    )


def _draft_model(
    model: Model, wanted: _Wanted, layout: Layout, parts: ExitStack
) -> LlamaDraftModel | None:
    if wanted.draft_model is None:
        return None
    draft_model = load_draft_model(
        wanted.draft_model,
        model,
        slots=wanted.slots,
        context_size=wanted.context_size,
        num_cells=layout.num_cells,
        threads=wanted.threads,
        gpu_layers=wanted.gpu_layers,
    )
    parts.callback(draft_model.free)
    return draft_model


def _warn_of_long_context(model: Model, context_size: int) -> None:
    if context_size > model.trained_context:
        logger.warning(
            "--context-size %d is more than the %d tokens that %s was trained for: beyond that, "
            "answers may become incoherent",
            context_size,
            model.trained_context,
            model.path,
        )
