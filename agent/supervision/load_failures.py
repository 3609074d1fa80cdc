"""Issues that say why a model cannot be served, and what to do about it."""

import signal

from ...shared.messages import Issue
from ..engine.model_error import DOES_NOT_FIT, missing_in
from ..models.model_file import ModelFile
from ..models.port import OtherFile
from .restarts import cause


def too_large(
    needed: int, memory: int, context_size: int | None = None, other: OtherFile | None = None
) -> Issue:
    """Return the issue that the model needs more memory than the host has; both in bytes.

    A context of `context_size` tokens, or the `other` quantisation, would fit.
    """
    others = (
        "choose a smaller quantisation, fewer slots, a shorter context or a smaller --host-cache, "
        "or another host"
    )
    return Issue(
        code="too_large",
        message=f"the model needs about {_size(needed)} of memory; this host has {_size(memory)}, "
        f"which is {_size(needed - memory)} too little",
        hint=_first(nearest_in_words(context_size, other), others),
    )


def too_large_for(file: ModelFile, memory: int) -> Issue | None:
    """Return the issue if the file needs more than the host's `memory`; 0 bytes means unknown."""
    needed = file.needed if file.least is None else file.least
    if not memory or needed is None or needed <= memory:
        return None
    return too_large(needed, memory, file.context_within(memory), file.other_within(memory))


def nearest_in_words(context_size: int | None, other: OtherFile | None) -> str:
    """Describe the nearest choices that fit; empty if there are none."""
    said = []
    if context_size is not None:
        said.append(f"with a context of {context_size} tokens a slot it fits")
    if other is not None:
        said.append(f"{other.source} ({_size(other.bytes)}) fits")
    return "; ".join(said)


def _first(nearest: str, others: str) -> str:
    return f"{nearest}; or {others}" if nearest else others


def no_memory(needed: int | None, available: int | None) -> Issue:
    """Return the issue that too little memory is free next to the other engines; both in bytes."""
    return Issue(
        code="no_memory",
        message=f"the model needs about {_size(needed or 0)} of memory; next to the other models "
        f"of this host only {_size(available or 0)} are free",
        hint="end other programs on this host, or have the agent serve fewer models at once "
        "(--models-max)",
    )


def too_large_for_gpus(needed: int, memory: int, context_size: int | None = None) -> Issue:
    """Return the issue that the GPU layers need more bytes of memory than the GPUs have.

    A context of `context_size` tokens would fit.
    """
    return Issue(
        code="too_large",
        message=f"the model needs about {_size(needed)} on GPUs; this host's have {_size(memory)}, "
        f"which is {_size(needed - memory)} too little",
        hint=_first(
            nearest_in_words(context_size, None),
            "let the agent choose what goes there (--gpu-layers auto), choose fewer layers on GPUs "
            "(--gpu-layers), a smaller quantisation, fewer slots or a shorter context, or another "
            "host",
        ),
    )


def load_failed(code: int, reason: str | None, file: ModelFile | None = None) -> Issue:
    """Return the issue that the engine process ended with `code` while it loaded `file`."""
    if code == -signal.SIGKILL:
        return Issue(
            code="too_large",
            message=f"while it loaded the model, the engine process {cause(code, reason)}",
            hint="choose a smaller quantisation, fewer slots or a shorter context, or another host",
        )
    if reason is not None and reason.startswith(DOES_NOT_FIT):
        return Issue(
            code="does_not_fit",
            message=reason,
            hint=_first(
                _nearest_after(reason, file),
                "choose a smaller quantisation or fewer slots, free memory, or take another host",
            ),
        )
    return Issue(
        code="load_failed",
        message=reason or f"while it loaded the model, the engine process {cause(code, reason)}",
        hint="the agent's log has the details; the file may be damaged, or of a kind that this "
        "build of llama.cpp does not know",
    )


def _nearest_after(reason: str, file: ModelFile | None) -> str:
    """Describe which choices would fit, from the memory that was missing; empty if unknown."""
    missing = missing_in(reason)
    if file is None or file.needed is None or missing is None:
        return ""
    memory = (file.needed if file.least is None else file.least) - missing
    return nearest_in_words(file.context_within(memory), file.other_within(memory))


def adapters_crashed(code: int, reason: str | None) -> Issue:
    """Return the issue that the engine process ended while it loaded adapters.

    The process restarts without the change.
    """
    return Issue(
        code="adapter",
        message=f"while it changed its adapters, the engine process {cause(code, reason)}",
        hint="the agent's log has the details; until the desired state changes, the model is "
        "served with the adapters that it had",
    )


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
