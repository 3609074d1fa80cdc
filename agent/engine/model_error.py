"""Why a model cannot be served. A file of its own: the supervisor imports no engine for it."""

import re
from math import ceil

DOES_NOT_FIT = "the model does not fit into memory"
"""What a message begins with where nothing less could be loaded either."""


_TOO_LITTLE = re.compile(rf"{DOES_NOT_FIT}, which has about (\d+\.\d\d) GiB too little")


def does_not_fit(missing: int, why: str) -> str:
    """The message; `missing` bytes are too few, 0 where that is not known."""
    too_few = f", which has about {_gib(missing)} GiB too little" if missing else ""
    return f"{DOES_NOT_FIT}{too_few}, and nothing less can be chosen: {why}"


def missing_in(message: str) -> int | None:
    """How many bytes are missing by a message of `does_not_fit`, if it says so."""
    found = _TOO_LITTLE.match(message)
    return None if found is None else ceil(float(found[1]) * 2**30)


def _gib(num_bytes: int) -> str:
    return f"{ceil(num_bytes / 2**30 * 100) / 100:.2f}"


class ModelError(Exception):
    """A model cannot be served: one line that names the file, what is wrong and what to do."""


class NoMemoryError(ModelError):
    """There was not enough memory for it."""
