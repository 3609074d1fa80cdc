"""Who sent a request: carried from the door to the log and the record of its end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` stands in logs and may label metrics: it comes from a bounded set, never from a body.

    Without access keys every caller is anonymous.
    """

    name: str = "anonymous"


ANONYMOUS = Caller()
