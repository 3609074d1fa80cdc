from itertools import permutations
from typing import get_args

import pytest

from arriero.agent.chat.families.families import FAMILIES, family_named
from arriero.agent.chat.families.family import Family, FamilyName


def test_every_name_has_its_family() -> None:
    assert sorted(family.name for family in FAMILIES) == sorted(get_args(FamilyName))
    assert all(family_named(family.name) is family for family in FAMILIES)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_marker_begins_with_another(family: Family) -> None:
    found = [each for each in family.markers(has_tools=True) if each not in family.inner]
    for marker, other in permutations(found, 2):
        assert not marker.startswith(other), (marker, other)
