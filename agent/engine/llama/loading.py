"""Loads a model file: its weights, their companions, and an engine over both.

If a part cannot be loaded, the earlier parts are freed. A model that cannot generate gets an
engine that only makes embeddings.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import llama_cpp.llama_cpp as llama_cpp

from ....shared.models.assignments import HOST
from ....shared.models.engine_options import Numa
from ....shared.reports.model_info import Kernels
from ...gguf.choice import Fitted
from ..load_options import LoadOptions, servers_of
from ..model_error import ModelError, NoMemoryError, does_not_fit
from .backends import cpu_library, libraries_folder, library
from .cells.layout import Layout, choose_layout
from .context import CannotGenerateError, can_take_back
from .devices import loaded_devices
from .draft_model import LlamaDraftModel, load_draft_model
from .encoder import EncoderEngine
from .engine import LlamaEngine
from .fitting import fitted
from .log import route_log
from .media.projector import Projector
from .model import Model, check_model_file
from .mtp import has_mtp
from .rpc import use_servers

logger = logging.getLogger(__name__)


Loaded = LlamaEngine | EncoderEngine


def load_engine(path: Path, options: LoadOptions, beside: Mapping[str, int] = {}) -> Loaded:
    """Load the model at `path` and make it ready to run; see `LoadEngine`. Raises `ModelError`."""
    route_log()
    library()
    _check(options.slots)
    check_model_file(path)
    _use_numa(options.numa)
    use_servers(servers_of(options.rpc))
    free = _free()
    if options.fit == "off":
        engine = _load(path, options)
    else:
        engine = load_what_fits(path, options, beside=beside)
    engine.model = replace(engine.model, held=held(engine.model.held, free, _free()))
    return engine


def _free() -> dict[str, int]:
    return {device.name: device.free for _, device in loaded_devices().gpus()}


def held(
    chosen: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int]
) -> dict[str, int]:
    """Return the bytes that a model takes of each memory: as chosen, or more if it took more.

    For devices, the free memory `before` and `after` loading is known.
    """
    missing = {name: size - after.get(name, size) for name, size in before.items()}
    names = (*chosen, *(name for name in missing if name not in chosen))
    taken = {name: max(chosen.get(name, 0), missing.get(name, 0)) for name in names}
    return {name: size for name, size in taken.items() if size > 0}


SHARES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.0)
"""Shares of the free memory to try in turn if an allocation fails."""


def load_what_fits(
    path: Path,
    options: LoadOptions,
    load: Callable[[Path, LoadOptions], Loaded] | None = None,
    *,
    beside: Mapping[str, int] = {},
) -> Loaded:
    """Try smaller shares of memory until `load` succeeds. Raises `ModelError`."""
    load = load or _load
    tried: list[LoadOptions] = []
    failure: NoMemoryError | None = None
    missing: int | None = None
    for share in SHARES:
        found = fitted(path, options, share, beside)
        if found is None:
            return load(path, options)
        if missing is None:
            missing = found.fit.missing  # of all memory that was free
        if found.options in tried:
            continue
        tried.append(found.options)
        _say(found, failure)
        try:
            engine = load(path, found.options)
        except NoMemoryError as error:
            failure = error
            continue
        engine.model = replace(
            engine.model,
            options=found.options,
            fit=_words(found, failure),
            held={HOST: found.fit.host} if found.fit.is_tight else found.held,
        )
        return engine
    raise ModelError(does_not_fit(missing or 0, str(failure))) from failure


def _say(found: Fitted, failure: NoMemoryError | None) -> None:
    if failure is not None:
        logger.warning("there was not enough memory, so a smaller choice is tried: %s", failure)
    logger.info("--fit chose options for the model: %s", found.said)
    if found.fit.is_tight:
        logger.warning("the model probably needs more memory than is free")


def _words(found: Fitted, failure: NoMemoryError | None) -> str:
    stepped = ", after a larger choice could not be allocated" if failure is not None else ""
    return found.said + stepped


def _load(path: Path, options: LoadOptions) -> Loaded:
    model = Model(
        path,
        options,
        kernels=choose_kernels(options.kernels),
        loads_mtp=_wants_mtp(options) and has_mtp(path),
    )
    if options.max_draft and not _can_draft(model, options):
        options = options.without_drafts
    try:
        engine = _over(model, options)
    except CannotGenerateError:
        return EncoderEngine(model, options)
    except ModelError:
        model.free()
        raise
    _warn_of_long_context(model, options)
    return engine


def _check(slots: int) -> None:
    most = llama_cpp.llama_max_parallel_sequences() - 1
    if slots > most:
        raise ModelError(f"llama.cpp runs at most {most} sequences at once: lower --slots {slots}")


def _wants_mtp(options: LoadOptions) -> bool:
    return options.max_draft > 0 and options.draft_model is None and not options.deterministic


_NUMA = {"distribute": 1, "isolate": 2, "numactl": 3}
"""`GGML_NUMA_STRATEGY_…`, which llama-cpp-python does not name."""


def _use_numa(strategy: Numa) -> None:
    """Set the NUMA strategy for this process, which has one model."""
    if strategy != "none":
        llama_cpp.llama_backend_init()
        llama_cpp.llama_numa_init(_NUMA[strategy])


def _can_draft(model: Model, options: LoadOptions) -> bool:
    if options.deterministic:
        logger.warning("--speculate %d has no effect with --deterministic", options.max_draft)
        return False
    can_draft = can_take_back(model)
    if not can_draft:
        logger.warning(
            "--speculate %d has no effect: the model %s cannot drop rejected draft tokens from "
            "its cache",
            options.max_draft,
            model.path,
        )
    return can_draft


def _over(model: Model, options: LoadOptions) -> LlamaEngine:
    """Return an engine over `model`. Raises `ModelError`; then only the model stays loaded."""
    with ExitStack() as parts:
        projector = _projector(model, options, parts)
        layout = choose_layout(
            options,
            can_share=model.can_share,
            is_offloaded=model.is_offloaded,
            has_grid=projector is not None and projector.has_grid,
        )
        draft_model = _draft_model(model, options, layout, parts)
        engine = LlamaEngine(
            model, options, layout=layout, projector=projector, draft_model=draft_model
        )
        parts.pop_all()  # they are the engine's now
    return engine


def _projector(model: Model, options: LoadOptions, parts: ExitStack) -> Projector | None:
    if options.projector is None:
        return None
    projector = Projector(
        options.projector,
        model.handle,
        threads=options.threads,
        is_offloaded=model.is_offloaded,
        most_at_once=options.ubatch_size,
    )
    parts.callback(projector.free)
    return projector


def _draft_model(
    model: Model, options: LoadOptions, layout: Layout, parts: ExitStack
) -> LlamaDraftModel | None:
    if options.draft_model is None:
        return None
    draft_model = load_draft_model(options.draft_model, model, options, num_cells=layout.num_cells)
    parts.callback(draft_model.free)
    return draft_model


def _warn_of_long_context(model: Model, options: LoadOptions) -> None:
    longest = model.longest_context(options)
    if options.slot_tokens > longest:
        logger.warning(
            "--context-size %d is more than the %d tokens that %s was trained for: beyond that, "
            "answers may become incoherent",
            options.slot_tokens,
            longest,
            model.path,
        )


_AMX = "AMX_INT8 = 1"
"""llama.cpp's description of a build with AMX kernels, on a processor with AMX."""

_SWITCH = b"-fno-dse"


def choose_kernels(
    choice: Literal["auto"] | Kernels, *, system: str | None = None, folder: Path | None = None
) -> Kernels:
    """Return the kernels for which to load weights.

    The fastest kernels (AMX tiles, repacked weights) keep weights in "extra buffers" with a layout
    of their own. The AMX kernels crash in a build whose compiler removed the stores that configure
    AMX tiles as dead code (ggml-org/llama.cpp#20824). gcc's `-fno-dse` keeps these stores, and
    `-frecord-gcc-switches` records the flags in the library. `auto` means all kernels, unless they
    use AMX and the build is unsafe.

    `system` is llama.cpp's description of its build, and `folder` has its libraries; both have
    defaults.
    """
    if choice != "auto":
        return choice
    if system is None:
        library()
        system = llama_cpp.llama_print_system_info().decode(errors="replace")
    if _AMX not in system or any(map(_is_mended, _cpu_libraries(folder))):
        return "all"
    logger.warning(
        "llama.cpp's plain kernels are used, which are slower: gcc breaks the AMX kernels "
        "without -fno-dse, and llama.cpp's library does not tell whether it was built with this "
        'flag; build it with CMAKE_ARGS=\'-DCMAKE_C_FLAGS="-fno-dse -frecord-gcc-switches" '
        '-DCMAKE_CXX_FLAGS="-fno-dse -frecord-gcc-switches"\', or, if the AMX kernels work on this '
        "host, set --kernels all"
    )
    return "plain"


def _is_mended(library: Path) -> bool:
    """Return whether the library's compiler kept the stores that configure AMX tiles."""
    return _SWITCH in library.read_bytes()


def _cpu_libraries(folder: Path | None) -> list[Path]:
    """Return the libraries for processors; only the loaded library, if the system names it."""
    loaded = cpu_library() if folder is None else None
    if loaded is not None:
        return [loaded]
    return [path for path in (folder or libraries_folder()).glob("*ggml-cpu*") if path.is_file()]
