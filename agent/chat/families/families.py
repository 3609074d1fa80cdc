"""The families of models, and which of them a chat template was written for."""

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

from . import records
from .family import Family


def families_in(package: ModuleType) -> Iterator[Family]:
    """The records in a package's files."""
    for file in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{file.name}")
        yield from (each for each in vars(module).values() if isinstance(each, Family))


FAMILIES = tuple(sorted(families_in(records), key=lambda family: family.name))

FAMILY_NAMES = tuple(family.name for family in FAMILIES)


def family_named(name: str) -> Family:
    """The family of that name; `KeyError` if there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise KeyError(f"there is no family {name!r}") from None


_BY_NAME = {family.name: family for family in FAMILIES}


def family_of(template: str, families: Iterable[Family] = FAMILIES) -> Family:
    """The family of which the template has the strongest hint; `plain` if it has none."""
    found = [
        (evidence, family.name, family)
        for family in families
        if (evidence := family.evidence(template)) is not None
    ]
    return min(found, key=lambda each: each[:2])[2] if found else family_named("plain")
