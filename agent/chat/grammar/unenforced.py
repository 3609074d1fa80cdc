"""Unenforced schema keywords: where they are, and the notice for the client."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ....shared.inference import Notice
from .schema import Schema
from .schema_place import children

MAX_LOOKS = 2000
"""Subschemas searched; keywords beyond are not reported."""

_KEYWORDS = re.compile(r"Unimplemented keys: (\[[^\]]*\])")
"""A count may follow."""


@dataclass(frozen=True, slots=True, order=True)
class Unenforced:
    """A `keyword` of the schema at `place` in the request."""

    place: str
    keyword: str


def keywords_in(warnings: Iterable[str]) -> frozenset[str]:
    """The keywords that llguidance does not enforce; its warnings do not say where they are."""
    found = (_KEYWORDS.match(warning) for warning in warnings)
    return frozenset(keyword for each in found if each for keyword in json.loads(each[1]))


def places_of(keywords: frozenset[str], schemas: Iterable[Schema]) -> Iterator[Unenforced]:
    """Where `schemas` have `keywords`, outermost first."""
    parts = [(each.field, each.schema) for each in schemas] if keywords else []
    for num_looks, (place, part) in enumerate(parts):
        yield from (Unenforced(place, key) for key in part if key in keywords)
        if num_looks + len(parts) < MAX_LOOKS:
            parts += [(place + way, child) for way, child in children(part)]


def notice_of(found: Sequence[Unenforced]) -> Notice | None:
    """One notice for all unenforced keywords; `None` if there are none."""
    if not found:
        return None
    first, num_more = found[0], len(found) - 1
    more = f", and {num_more} more are not" if num_more else ""
    return Notice(
        "schema_not_enforced",
        f"`{first.place}`: `{first.keyword}` is not enforced{more}; "
        "`strict` functions are refused instead",
    )
