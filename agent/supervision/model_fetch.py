"""Brings an assignment's file onto this host, and reads from its header what it needs."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...shared.messages import Issue
from ...shared.models.assignments import Assignment, Device
from ...shared.reports.model_info import ModelInfo
from ..engine.load_options import LoadOptions
from ..engine.model_error import ModelError
from ..models.fetched_files import FetchedFiles, adapters_on_host, fetch_adapters, fetch_all
from ..models.gguf_header import GgufHeader, HeaderError, read_header
from ..models.memory_estimate import DraftFile, MemoryEstimate, estimate
from ..models.model_file import AdapterOnHost, AdaptersHere, ModelFile, bytes_of
from ..models.port import FetchError, Lease, ModelFiles, OnProgress
from ..settings import AgentSettings
from .assigned_settings import OptionsError, assigned_settings
from .load_failures import too_large_for_gpus

logger = logging.getLogger(__name__)

Leases = tuple[tuple[ModelFile | AdapterOnHost, Lease], ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """A model's file with its adapters, and a lease for each file that was fetched.

    `issues` say why the file is without other adapters that are wished for.
    """

    file: ModelFile
    leases: Leases
    issues: tuple[Issue, ...] = ()


async def fetch_model(
    files: ModelFiles,
    settings: AgentSettings,
    assignment: Assignment,
    *,
    on_progress: OnProgress,
    devices: Sequence[Device] = (),
) -> Brought | Issue:
    """The file, and the leases that keep it; or why it cannot be served here, with these GPUs."""
    try:
        plain = replace(assignment, adapters=None)
        assigned_settings(settings, plain, ModelFile(""))  # before anything is downloaded
        fetched = await fetch_all(files, assignment, on_progress)
        try:
            file = await asyncio.to_thread(_inspect, fetched, settings, assignment, devices)
        except BaseException:
            fetched.release_all()
            raise
        adapters = zip(file.adapters, (each.lease for each in fetched.adapters), strict=True)
        leases: Leases = ((file.alone, fetched), *adapters)
        return Brought(file, leases, tuple(each.issue for each in fetched.failures))
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
        return _mistake("the model")


async def bring_adapters(
    files: ModelFiles, assignment: Assignment, beside: ModelFile, *, on_progress: OnProgress
) -> Brought | Issue:
    """`beside`, which is loaded, with all adapters of `assignment`, and the new ones' leases."""
    here = AdaptersHere(beside.adapters)
    missing = here.missing(assignment)
    try:
        fetched = await fetch_adapters(files, missing, on_progress)
    except FetchError as error:
        return error.issue
    except Exception:  # the boundary of a fetch, as above
        logger.exception("adapters of %s could not be fetched", assignment.source)
        return _mistake("adapters")
    new = adapters_on_host(missing, fetched)
    here.add(new)
    file = beside.with_adapters(here.of(assignment))
    return Brought(file, tuple(zip(new, (each.lease for each in fetched), strict=True)))


def _mistake(what: str) -> Issue:
    return Issue(
        code="fetch_failed",
        message=f"the agent failed to fetch {what}",
        hint="the agent's log has the details",
    )


class _TooLarge(Exception):
    """The part that is meant for GPUs does not fit on them."""

    def __init__(self, needed: int, memory: int) -> None:
        super().__init__(needed, memory)
        self.issue = too_large_for_gpus(needed, memory)


def _estimated(
    header: GgufHeader, options: LoadOptions, *, file_bytes: int
) -> MemoryEstimate | None:
    """Raises `OptionsError` where they do not go together, or a draft model cannot be read."""
    draft = None if options.draft_model is None else _draft_file(options.draft_model)
    try:
        return estimate(header, options, file_bytes=file_bytes, draft=draft)
    except ModelError as error:
        raise OptionsError(str(error)) from error


def _draft_file(path: Path) -> DraftFile:
    """Raises `OptionsError` where it cannot be read."""
    try:
        with path.open("rb") as file:
            return DraftFile(read_header(file), path.stat().st_size)
    except (HeaderError, OSError) as error:
        raise OptionsError(f"`draft_model`: {path} cannot be read as a model: {error}") from error


def _inspect(
    fetched: FetchedFiles,
    settings: AgentSettings,
    assignment: Assignment,
    devices: Sequence[Device],
) -> ModelFile:
    """Raises `HeaderError`, `OptionsError`, `_TooLarge` and `OSError`."""
    path = fetched.model.path
    if fetched.failures:
        assignment = replace(assignment, adapters=fetched.wished)
    adapters = adapters_on_host(fetched.wished, fetched.adapters)
    file = ModelFile(
        str(path),
        projector=fetched.projector_path,
        adapters=adapters,
        draft_model=fetched.draft_path,
    )
    wanted = assigned_settings(settings, assignment, file)
    with path.open("rb") as opened:
        header = read_header(opened)
    file_bytes = fetched.bytes + bytes_of(adapters)
    found = _estimated(header, wanted.load_options, file_bytes=file_bytes)
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
