"""Which family of models a chat template was written for: its source has their markers."""

from collections.abc import Iterable

from .families import FAMILIES, family_named
from .family import Family


def family_of(template: str, families: Iterable[Family] = FAMILIES) -> Family:
    """The family of which the template has the strongest hint; `plain` if it has none."""
    found = [
        (evidence, family.name, family)
        for family in families
        if (evidence := family.evidence(template)) is not None
    ]
    return min(found, key=lambda each: each[:2])[2] if found else family_named("plain")
