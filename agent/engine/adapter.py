"""Adapters (LoRA) in the engine: identified by the digest of their file, applied with a scale.

`Prompt.adapter` is one key for all adapters that apply at once. Equal keys stand for the same
computation, so cells with equal keys can be shared.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .model_error import ModelError


@dataclass(frozen=True, slots=True, order=True)
class AdapterUse:
    """An adapter, and the factor of its contribution to the model."""

    digest: str
    scale: float = 1.0


class AdapterError(ModelError):
    """The adapter with this `digest` cannot be loaded with the model."""

    def __init__(self, message: str, digest: str) -> None:
        super().__init__(message)
        self.digest = digest


def adapter_key(uses: Iterable[AdapterUse]) -> str | None:
    """Return one key for all `uses`, in any order; `None` if they have no effect.

    Raises `ValueError` if an adapter is used twice.
    """
    effective = sorted(use for use in uses if use.scale)
    if len({use.digest for use in effective}) < len(effective):
        raise ValueError("an adapter is used twice")
    return "+".join(f"{use.digest}*{float(use.scale)!r}" for use in effective) or None


def adapter_uses(key: str | None) -> tuple[AdapterUse, ...]:
    """Return the adapters and scales from which `adapter_key` made `key`."""
    if key is None:
        return ()
    pairs = (part.rpartition("*") for part in key.split("+"))
    return tuple(AdapterUse(digest, float(scale)) for digest, _, scale in pairs)
