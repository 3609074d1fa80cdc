"""Errors for models that cannot be served. The supervisor imports them without an engine."""

import re
from math import ceil

DOES_NOT_FIT = "the model does not fit into memory"
"""The beginning of the message if even the smallest choice could not be loaded."""


_TOO_LITTLE = re.compile(rf"{DOES_NOT_FIT}, which has about (\d+\.\d\d) GiB too little")


def does_not_fit(missing: int, why: str) -> str:
    """Return the message for a model that lacks `missing` bytes of memory; 0 if unknown."""
    too_few = f", which has about {_gib(missing)} GiB too little" if missing else ""
    return f"{DOES_NOT_FIT}{too_few}, and nothing less can be chosen: {why}"


def missing_in(message: str) -> int | None:
    """Return the missing bytes that a message of `does_not_fit` names, if it names any."""
    found = _TOO_LITTLE.match(message)
    return None if found is None else ceil(float(found[1]) * 2**30)


def _gib(num_bytes: int) -> str:
    return f"{ceil(num_bytes / 2**30 * 100) / 100:.2f}"


class ModelError(Exception):
    """A model cannot be served: one line with the file, the problem and what to do."""


class NoMemoryError(ModelError):
    """Not enough memory for the model."""
