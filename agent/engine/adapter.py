"""Adapters (LoRA) as the engine knows them: by the digest of their file, applied with a scale.

What `Prompt.adapter` holds is a key of all adapters that apply at once. It stands for what they
compute: equal keys, equal cells.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .model_error import ModelError


@dataclass(frozen=True, slots=True, order=True)
class AdapterUse:
    """An adapter, and the factor of what it adds to the model."""

    digest: str
    scale: float = 1.0


class AdapterError(ModelError):
    """The adapter of this `digest` cannot be loaded beside the model."""

    def __init__(self, message: str, digest: str) -> None:
        super().__init__(message)
        self.digest = digest


def adapter_key(uses: Iterable[AdapterUse]) -> str | None:
    """One key for all `uses`, in any order; `None` where nothing is added.

    Raises `ValueError` where an adapter is used twice.
    """
    effective = sorted(use for use in uses if use.scale)
    if len({use.digest for use in effective}) < len(effective):
        raise ValueError("an adapter is used twice")
    return "+".join(f"{use.digest}*{float(use.scale)!r}" for use in effective) or None


def adapter_uses(key: str | None) -> tuple[AdapterUse, ...]:
    """What `adapter_key` made `key` of."""
    if key is None:
        return ()
    pairs = (part.rpartition("*") for part in key.split("+"))
    return tuple(AdapterUse(digest, float(scale)) for digest, _, scale in pairs)
