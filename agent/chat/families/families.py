"""The table of model families, and the choice of one by chat template."""

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

from . import records
from .family import Family


def families_in(package: ModuleType) -> Iterator[Family]:
    """Yield the records in a package's files."""
    for file in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{file.name}")
        yield from (each for each in vars(module).values() if isinstance(each, Family))


FAMILIES = tuple(sorted(families_in(records), key=lambda family: family.name))

FAMILY_NAMES = tuple(family.name for family in FAMILIES)


def family_named(name: str) -> Family:
    """Return the family `name`. Raises `KeyError` for an unknown name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KeyError(f"there is no family {name!r}") from None


_BY_NAME = {family.name: family for family in FAMILIES}


def family_of(template: str, families: Iterable[Family] = FAMILIES) -> Family:
    """Return the family with the strongest hint in `template`; `plain` if no hint matches."""
    found = [
        (evidence, family.name, family)
        for family in families
        if (evidence := family.evidence(template)) is not None
    ]
    return min(found, key=lambda each: each[:2])[2] if found else family_named("plain")
