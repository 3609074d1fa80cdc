"""Brings an assignment's file onto this host, and reads from its header what it needs."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment, Device
from ...shared.reports.model_info import ModelInfo
from ..engine.llama.cells.layout import choose_layout
from ..engine.model_error import ModelError
from ..models.fetched_files import FetchedFiles, fetch_all
from ..models.gguf_header import HeaderError, read_header
from ..models.memory_estimate import MemoryEstimate, estimate, with_draft
from ..models.port import FetchError, Lease, ModelFiles, OnProgress
from ..settings import AgentSettings
from .assigned_settings import OptionsError, assigned_settings
from .decisions import ModelFile
from .load_failures import too_large_for_gpus

logger = logging.getLogger(__name__)


async def fetch_model(
    files: ModelFiles,
    settings: AgentSettings,
    assignment: Assignment,
    *,
    on_progress: OnProgress,
    devices: Sequence[Device] = (),
) -> tuple[ModelFile, Lease] | Issue:
    """The file, and the lease that keeps it; or why it cannot be served here, with these GPUs."""
    try:
        assigned_settings(settings, assignment, ModelFile(""))  # before anything is downloaded
        fetched = await fetch_all(files, assignment, on_progress)
        try:
            file = await asyncio.to_thread(_inspect, fetched, settings, assignment, devices)
        except BaseException:
            fetched.release()
            raise
        return file, fetched
    except (OptionsError, FetchError, _TooLarge) as error:
        return error.issue
    except HeaderError as error:
        return Issue(
            code="not_a_gguf",
            message=f"{assignment.source} cannot be read as a model: {error}",
            hint="name another file, or bring this one there again",
        )
    except Exception:  # the boundary of a fetch: the fleet is told, the log has it all
        logger.exception("%s could not be fetched", assignment.source)
        return Issue(
            code="fetch_failed",
            message="the agent failed to fetch the model",
            hint="the agent's log has the details",
        )


class _TooLarge(Exception):
    """The part that is meant for GPUs does not fit on them."""

    def __init__(self, needed: int, memory: int) -> None:
        super().__init__(needed, memory)
        self.issue = too_large_for_gpus(needed, memory)


def _num_cells(wanted: AgentSettings) -> int:
    """Of the KV cache, in the layout that the engine would choose."""
    try:
        layout = choose_layout(
            wanted.kv_layout,
            slots=wanted.slots,
            context_size=wanted.context_size,
            kv_cells=wanted.kv_cells,
            can_share=True,
            is_offloaded=False,
        )
    except ModelError as error:
        raise OptionsError(str(error)) from error
    return layout.num_cells


def _with_draft(found: MemoryEstimate, wanted: AgentSettings, path: Path) -> MemoryEstimate | None:
    """Raises `OptionsError` where the draft model cannot be read."""
    try:
        with path.open("rb") as file:
            header = read_header(file)
        file_bytes = path.stat().st_size
    except (HeaderError, OSError) as error:
        raise OptionsError(f"`draft_model`: {path} cannot be read as a model: {error}") from error
    num_cells = min(_num_cells(wanted), wanted.slots * wanted.context_size)
    return with_draft(found, header, file_bytes=file_bytes, slots=wanted.slots, num_cells=num_cells)


def _inspect(
    fetched: FetchedFiles,
    settings: AgentSettings,
    assignment: Assignment,
    devices: Sequence[Device],
) -> ModelFile:
    """Raises `HeaderError`, `OptionsError`, `_TooLarge` and `OSError`."""
    path = fetched.model.path
    file = ModelFile(str(path), projector=fetched.projector_path, adapters=fetched.adapter_paths)
    wanted = assigned_settings(settings, assignment, file)
    with path.open("rb") as opened:
        header = read_header(opened)
    found = estimate(
        header,
        file_bytes=fetched.bytes,
        slots=wanted.slots,
        num_cells=_num_cells(wanted),
        max_draft=wanted.speculate,
        longest_input=wanted.context_size,
        host_cache=wanted.host_cache,
    )
    if found is not None and wanted.draft_model is not None:
        found = _with_draft(found, wanted, wanted.draft_model)
    if devices and found is not None:
        needed, memory = found.on_gpus(wanted.gpu_layers), sum(each.memory for each in devices)
        if needed > memory:
            raise _TooLarge(needed, memory)
    info = ModelInfo(
        name=assignment.name,
        architecture=header.architecture,
        parameters=header.num_parameters,
        size_bytes=fetched.model.bytes,
        context_size=wanted.context_size,
    )
    return replace(file, needed=None if found is None else found.total, info=info)
