"""Fetches an assignment's files to this host, and reads the model's needs from its header."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...shared.messages import Issue
from ...shared.models.assignments import HOST, Assignment, DesiredAdapter, Device, MemoryPart
from ...shared.models.engine_options import devices_of
from ...shared.reports.model_info import ModelInfo
from ..engine.load_options import LoadOptions
from ..engine.model_error import ModelError
from ..gguf.choice import EmptyDevice
from ..gguf.choice import claims as claims_of
from ..gguf.header import HeaderError, read_header
from ..gguf.memory_estimate import (
    MemoryEstimate,
    ModelFileSizes,
    bytes_beside,
    estimate,
    read_sizes,
    sizes_of,
)
from ..models.gguf_check import check_is_model
from ..models.model_file import AdapterOnHost, AdaptersHere, ModelFile, bytes_of
from ..models.port import (
    FetchedModel,
    FetchError,
    Lease,
    ModelFiles,
    OnHeader,
    OnProgress,
    RemoteModel,
)
from ..settings import AgentSettings
from .assigned_settings import OptionsError, assigned_settings
from .load_failures import too_large_for, too_large_for_gpus

logger = logging.getLogger(__name__)

LEAST_CONTEXT = 512
"""Minimum context in tokens that is proposed."""


Leases = tuple[tuple[ModelFile | AdapterOnHost, Lease], ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """A model's file with its adapters, and a lease for each fetched file.

    `issues` say why other adapters of the assignment are missing.
    """

    file: ModelFile
    leases: Leases
    issues: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfit:
    """The model was not fetched: by its header, `file` needs more memory than this host has."""

    issue: Issue
    file: ModelFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFiles:
    """All files of an assignment: the model, its companions and adapters.

    One lease covers the files that are loaded with the model. Each adapter has its own lease,
    since adapters can change while the model stays. `requested` are the assignment's adapters that
    could be fetched, in its order, and `adapters` are their files. `failures` say why other
    adapters could not be fetched. `release` releases everything except the adapters.
    """

    model: FetchedModel
    projector: FetchedModel | None = None
    draft_model: FetchedModel | None = None
    requested: tuple[DesiredAdapter, ...] = ()
    adapters: tuple[FetchedModel, ...] = ()
    failures: tuple[FetchError, ...] = ()

    @property
    def projector_path(self) -> str | None:
        return None if self.projector is None else str(self.projector.path)

    @property
    def draft_path(self) -> str | None:
        return None if self.draft_model is None else str(self.draft_model.path)

    def release(self) -> None:
        for each in (self.model, self.projector, self.draft_model):
            if each is not None:
                each.lease.release()

    def release_all(self) -> None:
        """Release all leases, including those of adapters."""
        self.release()
        for each in self.adapters:
            each.lease.release()


async def fetch_model(
    files: ModelFiles,
    settings: AgentSettings,
    assignment: Assignment,
    *,
    on_progress: OnProgress,
    devices: Sequence[Device] = (),
    host: int = 0,
) -> Brought | Unfit | Issue:
    """Fetch the model, or return why it cannot be served on this host.

    `devices` are the host's GPUs, and `host` its own memory in bytes.
    """
    try:
        plain = replace(assignment, adapters=None)
        options = assigned_settings(settings, plain, ModelFile(""))
        if devices:
            _chosen(devices, options)  # before anything is downloaded
        fetched = await fetch_all(
            files,
            assignment,
            on_progress,
            on_header=partial(_check_remote, settings, assignment, devices, host),
        )
        try:
            file = await asyncio.to_thread(_inspect, fetched, settings, assignment, devices, host)
        except BaseException:
            fetched.release_all()
            raise
        adapters = zip(file.adapters, (each.lease for each in fetched.adapters), strict=True)
        leases: Leases = ((file.alone, fetched), *adapters)
        return Brought(file, leases, tuple(each.issue for each in fetched.failures))
    except _TooLargeError as error:
        return error.issue if error.file is None else Unfit(error.issue, error.file)
    except (OptionsError, FetchError) as error:
        return error.issue
    except HeaderError as error:
        return Issue(
            code="not_a_gguf",
            message=f"{assignment.source} cannot be read as a model: {error}",
            hint="name another file, or copy this file there again",
        )
    except Exception:  # the boundary of a fetch: the fleet gets an issue, the log has it all
        logger.exception("%s could not be fetched", assignment.source)
        return _mistake("the model")


async def bring_adapters(
    files: ModelFiles, assignment: Assignment, beside: ModelFile, *, on_progress: OnProgress
) -> Brought | Issue:
    """Return the loaded file `beside` with all adapters of `assignment`.

    Missing adapters are fetched and leased.
    """
    here = AdaptersHere(beside.adapters)
    missing = here.missing(assignment)
    try:
        fetched = await fetch_adapters(
            files, missing, on_progress, http_hosts=assignment.http_hosts
        )
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


class _TooLargeError(Exception):
    """This host cannot hold the model.

    `file` has the model's needs if the memory of all devices together is too small.
    """

    def __init__(self, issue: Issue, file: ModelFile | None = None) -> None:
        super().__init__(issue.message)
        self.issue = issue
        self.file = file


async def _check_remote(
    settings: AgentSettings,
    assignment: Assignment,
    devices: Sequence[Device],
    host: int,
    remote: RemoteModel,
) -> None:
    """Raise `_TooLargeError` if the model alone needs more memory than this host has."""
    alone = replace(
        assignment,
        adapters=None,
        projector=None,
        engine=replace(assignment.engine, draft_model=None),
    )
    file = ModelFile("model.gguf", bytes=remote.bytes, others=remote.others)
    options = assigned_settings(settings, alone, file)
    try:
        check_is_model(remote.header, assignment.source)
        sizes = sizes_of([(remote.header, remote.bytes)])
        file = await asyncio.to_thread(_sized, file, sizes, options, devices)
    except (OptionsError, HeaderError):
        return  # with the file here, more can be said
    memory = host + sum(each.memory for each in devices)
    if (issue := too_large_for(file, memory if host else 0)) is not None:
        raise _TooLargeError(issue, file)


def _sized(
    file: ModelFile,
    sizes: ModelFileSizes,
    options: AgentSettings,
    devices: Sequence[Device],
) -> ModelFile:
    """Return `file` with the memory that it needs, as far as its header says.

    `sizes` are the sizes of the model alone. Raises `OptionsError` and `_TooLargeError`.
    """
    adapted = _with_adapters(sizes, file.adapters)
    found = _estimated(adapted, options.load_options)
    if found is None:
        return file
    needed = found.on_gpus(options)
    if devices and needed is not None:
        memory = sum(each.memory for each in _chosen(devices, options))
        if needed > memory:
            shorter = _shorter_on_gpus(adapted, options, memory)
            raise _TooLargeError(too_large_for_gpus(needed, memory, shorter))
    return replace(
        file,
        needed=found.total,
        least=_least(adapted, options.load_options),
        shorter=_shorter(sizes, options.load_options),
    )


def _with_adapters(sizes: ModelFileSizes, adapters: Sequence[AdapterOnHost]) -> ModelFileSizes:
    return replace(sizes, num_bytes=sizes.num_bytes + bytes_of(adapters))


def _estimated(sizes: ModelFileSizes, options: LoadOptions) -> MemoryEstimate | None:
    """Estimate the memory; `None` if unknown.

    Raises `OptionsError` if options conflict, or a draft model cannot be read.
    """
    try:
        beside = bytes_beside(options)
        return None if beside is None else estimate(sizes, options, beside=beside)
    except ModelError as error:
        raise OptionsError(str(error)) from error
    except (HeaderError, OSError) as error:
        path = options.draft_model
        raise OptionsError(f"`draft_model`: {path} cannot be read as a model: {error}") from error


def _inspect(
    fetched: FetchedFiles,
    settings: AgentSettings,
    assignment: Assignment,
    devices: Sequence[Device],
    host: int,
) -> ModelFile:
    """Return the model's file with its needs, from the fetched files.

    Raises `HeaderError`, `FetchError`, `OptionsError`, `_TooLargeError` and `OSError`.
    """
    path = fetched.model.path
    if fetched.failures:
        assignment = replace(assignment, adapters=fetched.requested)
    adapters = adapters_on_host(fetched.requested, fetched.adapters)
    file = ModelFile(
        str(path),
        projector=fetched.projector_path,
        adapters=adapters,
        draft_model=fetched.draft_path,
        bytes=fetched.model.bytes,
        others=fetched.model.others,
    )
    options = assigned_settings(settings, assignment, file)
    sizes = _read(path, fetched.model.bytes)
    header = sizes.header
    check_is_model(header, assignment.source)
    file = _sized(file, sizes, options, devices)
    info = ModelInfo(
        name=assignment.name,
        architecture=header.architecture,
        parameters=header.num_parameters,
        size_bytes=fetched.model.bytes,
        context_size=options.load_options.slot_tokens,
    )
    if file.needed is None:
        return replace(file, info=info)
    claims: tuple[MemoryPart, ...] = (MemoryPart(device=HOST, bytes=file.needed),)
    if devices:
        claims = _claims(_with_adapters(sizes, adapters), options, devices, host)
    return replace(file, info=info, claims=claims)


def _read(path: Path, num_bytes: int) -> ModelFileSizes:
    """Return the sizes of the model at `path`. Raises `HeaderError` and `OSError`."""
    try:
        return read_sizes(path)
    except ValueError:  # a name that is not the first one's of several; loading says what is wrong
        with path.open("rb") as file:
            return sizes_of([(read_header(file), num_bytes)])


def _claims(
    sizes: ModelFileSizes, options: AgentSettings, devices: Sequence[Device], host: int
) -> tuple[MemoryPart, ...]:
    """Return the memory, per device, that must be free to load the model; empty if unknown."""
    empty = [EmptyDevice(each.name, each.memory) for each in _named(devices, options)]
    found = claims_of(sizes, options.load_options, empty, host) or {}
    return tuple(MemoryPart(device=name, bytes=size) for name, size in found.items())


def _least(sizes: ModelFileSizes, options: LoadOptions) -> int | None:
    """Return the model's memory with the smallest cache that `--fit` may choose.

    Returns `None` if `--fit` may not choose the cache.
    """
    has_streams = options.deterministic or options.kv_layout == "streams"
    if options.fit == "off" or options.kv_cells != "auto" or has_streams:
        return None
    fewest = options.model_copy(update={"kv_cells": options.slot_tokens})
    found = _estimated(sizes, fewest)
    return None if found is None else found.total


def _shorter(sizes: ModelFileSizes, options: LoadOptions) -> tuple[tuple[int, int], ...]:
    """Return shorter contexts, each half of the previous one, with the model's memory in bytes.

    Adapters are not counted. Empty if the number of cells is set explicitly.
    """
    found = []
    context_size = options.slot_tokens // 2
    while options.kv_cells == "auto" and context_size >= LEAST_CONTEXT:
        fewer = options.model_copy(update={"context_size": context_size})
        if (size := _estimated(sizes, fewer)) is not None:
            found.append((context_size, size.total))
        context_size //= 2
    return tuple(found)


def _shorter_on_gpus(sizes: ModelFileSizes, options: AgentSettings, memory: int) -> int | None:
    """Return the longest shorter context with which the GPU part of the model fits."""
    context_size = options.load_options.slot_tokens // 2
    while options.kv_cells == "auto" and context_size >= LEAST_CONTEXT:
        fewer = options.model_copy(update={"context_size": context_size})
        found = _estimated(sizes, fewer.load_options)
        needed = None if found is None else found.on_gpus(fewer)
        if needed is not None and needed <= memory:
            return context_size
        context_size //= 2
    return None


def _chosen(devices: Sequence[Device], options: AgentSettings) -> Sequence[Device]:
    """Return the devices that `options` choose. Raises `OptionsError` for unknown names."""
    devices = _named(devices, options)
    if options.split_mode == "none":
        return devices[options.main_gpu : options.main_gpu + 1]
    return devices


def _named(devices: Sequence[Device], options: AgentSettings) -> Sequence[Device]:
    """Return the devices for layers, in llama.cpp's order.

    Raises `OptionsError` for unknown names.
    """
    if options.device is None:
        return sorted(devices, key=lambda each: not each.name.startswith("RPC"))
    by_name = {each.name: each for each in devices}
    for name in devices_of(options.device):
        if name not in by_name:
            here = ", ".join(by_name)
            raise OptionsError(f"`device`: there is no {name} on this host, which has {here}")
    return [by_name[name] for name in devices_of(options.device)]


async def fetch_all(
    files: ModelFiles,
    assignment: Assignment,
    on_progress: OnProgress,
    *,
    on_header: OnHeader | None = None,
) -> FetchedFiles:
    """Fetch all files of `assignment`.

    `on_header` is called for the model alone, as in `ModelFiles.fetch`. Adapters that cannot be
    fetched become `failures`. Raises a `FetchError` that names the file; all leases are then
    released.
    """
    adapters: list[tuple[DesiredAdapter, FetchedModel]] = []
    failures: list[FetchError] = []
    with ExitStack() as held:
        bringer = _Bringer(files, assignment.http_hosts, on_progress, held)
        model = await bringer.bring(assignment.source, "", assignment.sha256, on_header)
        projector = await bringer.bring_any(assignment.projector, "`projector`: ")
        draft = draft_source(assignment)
        draft_model = await bringer.bring_any(draft, "`engine.draft_model`: ")
        for each in assignment.adapters or ():
            try:
                adapters.append((each, await bringer.bring_adapter(each)))
            except FetchError as error:
                failures.append(error)
        held.pop_all()
    return FetchedFiles(
        model=model,
        projector=projector,
        draft_model=draft_model,
        requested=tuple(adapter for adapter, _ in adapters),
        adapters=tuple(fetched for _, fetched in adapters),
        failures=tuple(failures),
    )


async def fetch_adapters(
    files: ModelFiles,
    adapters: Sequence[DesiredAdapter],
    on_progress: OnProgress,
    *,
    http_hosts: Sequence[str] = (),
) -> tuple[FetchedModel, ...]:
    """Fetch only adapters. If one of them fails, raises `FetchError` as `fetch_all` does."""
    with ExitStack() as held:
        bringer = _Bringer(files, http_hosts, on_progress, held)
        fetched = [await bringer.bring_adapter(each) for each in adapters]
        held.pop_all()
    return tuple(fetched)


def adapters_on_host(
    adapters: Sequence[DesiredAdapter], fetched: Sequence[FetchedModel]
) -> tuple[AdapterOnHost, ...]:
    """Pair each adapter with its fetched file."""
    return tuple(
        AdapterOnHost(adapter.source, str(file.path), file.bytes)
        for adapter, file in zip(adapters, fetched, strict=True)
    )


def draft_source(assignment: Assignment) -> str | None:
    """Return the source of the draft model to fetch; `None` if there is none, or it is a path."""
    draft = assignment.engine.draft_model
    return None if draft is None or draft.startswith("/") else draft


@dataclass(frozen=True, slots=True)
class _Bringer:
    """Fetches files, and releases all leases together. `http_hosts` are the assignment's."""

    files: ModelFiles
    http_hosts: Sequence[str]
    on_progress: OnProgress
    held: ExitStack

    async def bring(
        self,
        source: str,
        called: str,
        sha256: str | None = None,
        on_header: OnHeader | None = None,
    ) -> FetchedModel:
        try:
            fetched = await self.files.fetch(
                source,
                sha256=sha256,
                http_hosts=self.http_hosts,
                on_progress=self.on_progress,
                on_header=on_header,
            )
        except FetchError as error:
            raise FetchError(error.code, called + error.message, error.hint) from error
        self.held.callback(fetched.lease.release)
        return fetched

    async def bring_any(self, source: str | None, called: str) -> FetchedModel | None:
        return None if source is None else await self.bring(source, called)

    async def bring_adapter(self, adapter: DesiredAdapter) -> FetchedModel:
        try:
            return await self.bring(adapter.source, f"adapter `{adapter.name}`: ")
        except FetchError as error:
            error.adapter = adapter.name
            raise
