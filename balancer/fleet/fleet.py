"""The fleet's core: queue, exchanges and agents composed."""

from .limits import Limits


class Fleet:
    """Pure; driven by the switchboard."""

    def __init__(self, limits: Limits, *, version: str = "") -> None:
        raise NotImplementedError
