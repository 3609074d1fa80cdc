"""The fields that a client library's types have, to be held against our tables."""

from collections.abc import Iterator
from typing import Any, get_type_hints

from arriero.balancer.api.fields.field_table import FieldTable

OUT_OF_BODY = frozenset({"betas"})
"""Parameters that the libraries send as headers."""


def fields_of(parameters: type[Any]) -> Iterator[str]:
    """The names of a request's own fields."""
    return iter(get_type_hints(parameters).keys() - OUT_OF_BODY)


def unlisted(table: FieldTable, *parameters: type[Any]) -> list[str]:
    """Fields of the request types `parameters` that are in none of the three kinds."""
    known = table.obeyed | table.rules.keys()
    return sorted({name for each in parameters for name in fields_of(each)} - known)
