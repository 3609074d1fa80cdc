"""Readers go on from where they are, or begin again; and what is kept for them is bounded."""

from collections.abc import Iterator

import pytest

from arriero.balancer.management.event_history import SHARED_SECONDS, EventHistory


class Snapshots:
    """Counts how often one was made; each is `size` bytes long."""

    def __init__(self, size: int = 10) -> None:
        self.num = 0
        self.size = size

    def __call__(self) -> bytes:
        self.num += 1
        return b"%d" % self.num + b"s" * self.size


def ids(frames: list[bytes]) -> Iterator[str]:
    for frame in frames:
        event, id, data, *rest = frame.decode().split("\n")
        assert event in ("event: snapshot", "event: delta")
        assert data.startswith("data: ") and rest == ["", ""]
        yield f"{event.removeprefix('event: ')} {id.removeprefix('id: h-')}"


def history(num_deltas: int = 0, **limits: int) -> EventHistory:
    made = EventHistory("h", **limits)
    for number in range(num_deltas):
        made.append(b"%d" % number)
    return made


def test_a_newcomer_gets_a_snapshot() -> None:
    assert list(ids(history(3).after(None, Snapshots(), 0.0))) == ["snapshot 3"]


def test_whoever_is_behind_gets_the_deltas_that_it_lacks() -> None:
    snapshots = Snapshots()
    assert list(ids(history(3).after(1, snapshots, 0.0))) == ["delta 2", "delta 3"]
    assert history(3).after(3, snapshots, 0.0) == []
    assert snapshots.num == 0


def test_whoever_is_too_far_behind_begins_again() -> None:
    few = history(5, max_deltas=2)
    assert list(ids(few.after(3, Snapshots(), 0.0))) == ["delta 4", "delta 5"]
    assert list(ids(few.after(2, Snapshots(), 0.0))) == ["snapshot 5"]


def test_a_position_that_has_not_come_yet_is_none() -> None:
    assert list(ids(history(3).after(4, Snapshots(), 0.0))) == ["snapshot 3"]


def test_whoever_is_too_far_behind_shares_a_snapshot_while_the_deltas_since_are_few() -> None:
    made = history(3, max_deltas=2)
    snapshots = Snapshots(size=1000)
    made.after(None, snapshots, 0.0)
    made.append(b"small")
    assert list(ids(made.after(0, snapshots, 100.0))) == ["snapshot 3", "delta 4"]
    assert snapshots.num == 1
    made.append(b"x" * 600)
    assert list(ids(made.after(0, snapshots, 100.0))) == ["snapshot 5"]
    assert snapshots.num == 2


def test_a_newcomers_snapshot_is_of_this_moment() -> None:
    made = history(1)
    snapshots = Snapshots(size=1000)
    assert list(ids(made.after(None, snapshots, 0.0))) == ["snapshot 1"]
    made.append(b"small")
    assert list(ids(made.after(None, snapshots, 0.0))) == ["snapshot 2"]
    assert list(ids(made.after(None, snapshots, SHARED_SECONDS))) == ["snapshot 2"]
    assert snapshots.num == 3, "the times in it have gone on"


def test_newcomers_who_come_together_share_a_snapshot() -> None:
    made, snapshots = history(1), Snapshots()
    first = made.after(None, snapshots, 0.0)
    assert made.after(None, snapshots, SHARED_SECONDS / 2) == first
    assert snapshots.num == 1


def test_a_snapshot_that_the_deltas_do_not_reach_is_not_used() -> None:
    made = history(0, max_deltas=2)
    snapshots = Snapshots(size=10_000)
    made.after(None, snapshots, 0.0)
    for _ in range(3):
        made.append(b"x")
    assert list(ids(made.after(None, snapshots, 0.0))) == ["snapshot 3"]


def test_what_a_snapshot_publishes_first_is_in_it() -> None:
    made = history(1)

    def snapshot() -> bytes:
        made.append(b"late")
        return b"all"

    assert list(ids(made.after(None, snapshot, 0.0))) == ["snapshot 2"]


def test_bytes_are_bounded() -> None:
    made = history(0, max_bytes=1000)
    for _ in range(100):
        made.append(b"x" * 100)
        assert made.num_bytes <= 1000
    made.append(b"x" * 5000)
    assert list(ids(made.after(100, Snapshots(), 0.0))) == ["delta 101"]
    made.append(b"x")
    assert made.num_bytes < 100
    assert made.num_bytes_ever > 15_000


def test_after_a_restart_everyone_begins_again() -> None:
    made = history(3)
    made.restart()
    made.append(b"x")
    assert list(ids(made.after(3, Snapshots(), 0.0))) == ["snapshot 5"]
    assert list(ids(made.after(4, Snapshots(), 0.0))) == ["delta 5"]


@pytest.mark.parametrize(
    ("event_id", "position"),
    [
        ("h-12", 12),
        ("other-12", None),
        ("h-", None),
        ("h--1", None),
        ("", None),
        ("h-²", None),
        ("h-" + "9" * 5000, None),
    ],
)
def test_ids_of_events(event_id: str, position: int | None) -> None:
    assert history().position_of(event_id) == position
