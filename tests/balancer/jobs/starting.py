"""All lines that may start now, one after the other."""

from collections.abc import Iterator

from arriero.balancer.jobs.lines import Line
from arriero.balancer.jobs.schedule import LineKey, Rooms, Schedule


def all_next(schedule: Schedule, now: float, rooms: Rooms) -> Iterator[tuple[LineKey, Line]]:
    while (started := schedule.start_next(now, rooms)) is not None:
        yield started
