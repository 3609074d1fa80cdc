"""Which newcomers are refused at once, since for all that is known they would wait in vain."""

from ....shared.errors import QueueFull

HOPELESS = 3.0
"""A newcomer is refused that would wait so many times as long as it may, for all that is known."""

ENOUGH = 10
"""Requests of a model that have ended before newcomers are refused because of how long it took."""

ENOUGH_FOR_DEADLINE = 3
"""The same, of newcomers that say their own deadline."""


def least_ended(deadline_ms: int | None) -> int:
    """Requests of a newcomer's model that must have ended before it may be refused."""
    return ENOUGH if deadline_ms is None else ENOUGH_FOR_DEADLINE


def refusal_of(
    seconds: float,
    *,
    deadline_ms: int | None,
    longest_wait: float,
    position: int,
    retry_after: float,
) -> QueueFull | None:
    """The error for a newcomer that gets a slot in about `seconds`, if that is too late for it.

    It may wait `longest_wait` seconds; after `deadline_ms` its answer is of no use.
    """
    if deadline_ms is not None and seconds * 1000 > deadline_ms:
        return QueueFull(
            f"`deadline_ms`: a slot is free in about {seconds:.1f} s, at place {position}; "
            f"{deadline_ms} ms are too few",
            field="deadline_ms",
            retry_after=seconds,
            position=position,
        )
    if seconds > HOPELESS * longest_wait:
        return QueueFull(
            f"a slot would be free in about {seconds:.0f} s, at place {position}; "
            f"requests wait {longest_wait:g} s at most",
            retry_after=retry_after,
            position=position,
        )
    return None
