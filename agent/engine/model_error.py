"""Why a model cannot be served. A file of its own: the supervisor imports no engine for it."""

DOES_NOT_FIT = "the model does not fit into memory"
"""What a message begins with where nothing less could be loaded either."""


class ModelError(Exception):
    """A model cannot be served: one line that names the file, what is wrong and what to do."""


class NoMemoryError(ModelError):
    """There was not enough memory for it."""
