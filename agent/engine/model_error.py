"""Why a model cannot be served. A file of its own: the supervisor imports no engine for it."""


class ModelError(Exception):
    """A model cannot be served: one line that names the file, what is wrong and what to do."""
