from collections import Counter

from bench.chaos.footprint import Footprint, left_over, unrest

BEFORE = Footprint(Counter({"socket": 10, "pipe": 2}), num_threads=8, num_bytes=100_000_000)
AT_REST = """# HELP arriero_queue_depth …
arriero_queue_depth 0.0
arriero_slots{agent="a",state="total"} 2.0
arriero_slots{agent="a",state="busy"} 0.0
arriero_inference_connections 0.0
"""


def test_what_is_as_before_leaves_nothing() -> None:
    assert left_over(BEFORE, BEFORE) == []
    assert left_over(BEFORE, Footprint(Counter({"socket": 9}), 7, 90_000_000)) == []


def test_files_that_were_left() -> None:
    more = Footprint(BEFORE.files + Counter({"socket": 3}), 8, 100_000_000)
    assert left_over(BEFORE, more) == ["files left open: 3 socket"]


def test_workers_that_were_left() -> None:
    cached, more = (Footprint(BEFORE.files, 8, 100_000_000, num) for num in (3, 4))
    assert left_over(BEFORE, cached) == []
    assert left_over(BEFORE, more) == ["workers left: 4, before 0"]


def test_threads_that_were_left() -> None:
    assert left_over(BEFORE, Footprint(BEFORE.files, 30, 100_000_000)) == [
        "threads left: 30, before 8"
    ]


def test_memory_that_was_left() -> None:
    assert left_over(BEFORE, Footprint(BEFORE.files, 8, 300_000_000)) == [
        "memory: 300 MB, before 100"
    ]


def test_a_balancer_at_rest() -> None:
    assert unrest(AT_REST) == []


def test_a_slot_that_was_left() -> None:
    busy = AT_REST + 'arriero_slots{agent="b",state="busy"} 1.0\n'
    assert unrest(busy) == ['arriero_slots{state="busy"} is 1']


def test_a_connection_and_a_queued_request_that_were_left() -> None:
    left = AT_REST.replace("depth 0.0", "depth 2.0").replace("connections 0.0", "connections 1.0")
    assert unrest(left) == ["arriero_queue_depth is 2", "arriero_inference_connections is 1"]
