"""The adapters that are served with a model, by name, and the choice of adapters for a request.

A request names its adapters in `adapters`, or asks for the model `base:adapter`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..shared.errors import InvalidRequest, ModelNotFound
from ..shared.inference import GenerateRequest
from ..shared.inference.adapters import AdapterChoice, adapted_name
from .engine.adapter import AdapterUse, adapter_key


@dataclass(frozen=True, slots=True)
class AdapterFile:
    """An adapter in a file of this host; `scale` applies to requests without a scale."""

    name: str
    path: Path
    scale: float = 1.0
    digest: str = ""


class AdapterTable:
    """The adapters of the model that clients call `base`."""

    def __init__(self, base: str = "", adapters: Iterable[AdapterFile] = ()) -> None:
        self._base = base
        self._adapters = {one.name: one for one in adapters}

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters' names, in the order in which they were given."""
        return tuple(self._adapters)

    @property
    def files(self) -> Mapping[str, Path]:
        """The adapters' files by digest."""
        return {one.digest: one.path for one in self._adapters.values()}

    def name_of(self, digest: str) -> str:
        """Return the first name of the file with this digest."""
        return next(one.name for one in self._adapters.values() if one.digest == digest)

    @property
    def traits(self) -> tuple[str, ...]:
        """Return the properties of the adapters that change answers; they enter the fingerprint."""
        return tuple(f"{one.name}={one.digest}*{one.scale!r}" for one in self._adapters.values())

    def key_for(self, request: GenerateRequest) -> str | None:
        """Return the key of the request's adapters, for `Prompt.adapter`.

        Raises `RequestError` if the request names an adapter that does not exist.
        """
        if request.adapters is not None:
            return self._key(request.adapters)
        names = {adapted_name(self._base, name): name for name in self._adapters}
        if request.model in names:
            return self._key((AdapterChoice(name=names[request.model]),))
        head, _, tail = (request.model or "").rpartition(":")
        if head and head == self._base:
            raise ModelNotFound(f"the model `{head}` has no adapter `{tail}`")
        return None

    def _key(self, choices: Iterable[AdapterChoice]) -> str | None:
        try:
            return adapter_key(self._use(place, one) for place, one in enumerate(choices))
        except ValueError as error:
            raise InvalidRequest(f"`adapters`: {error}", field="adapters") from error

    def _use(self, place: int, choice: AdapterChoice) -> AdapterUse:
        known = self._adapters.get(choice.name)
        if known is None:
            field = f"adapters[{place}].name"
            there = ", ".join(self._adapters) or "none"
            raise InvalidRequest(
                f"`{field}`: there is no adapter `{choice.name}`; there are: {there}", field=field
            )
        return AdapterUse(known.digest, known.scale if choice.scale is None else choice.scale)
