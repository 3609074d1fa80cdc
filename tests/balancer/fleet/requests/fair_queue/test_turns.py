from arriero.balancer.fleet.requests.fair_queue.turns import EVERY, STARVED_AFTER, Turns
from arriero.shared.inference import PriorityClass

BOTH: list[PriorityClass] = ["interactive", "batch"]
POOL = ("m",)


def waiting(*kinds: PriorityClass, since: float = 0.0) -> Turns:
    turns = Turns()
    for kind in kinds:
        turns.waits(kind, "m", since)
    return turns


def starts(turns: Turns, kinds: list[PriorityClass], num: int, now: float) -> list[PriorityClass]:
    """So many starts while all of `kinds` wait."""
    started = []
    for _ in range(num):
        kind = turns.next(kinds, POOL, now)
        started.append(kind)
        turns.started(kind, [each for each in kinds if each != kind], POOL, now)
    return started


def test_the_highest_class_is_first() -> None:
    turns = waiting("interactive", "batch")
    assert starts(turns, BOTH, 9, now=STARVED_AFTER - 1) == ["interactive"] * 9


def test_a_class_that_starves_gets_one_start_of_a_few() -> None:
    turns = waiting("interactive", "batch")
    started = starts(turns, BOTH, 3 * EVERY, now=STARVED_AFTER)
    assert started == [*["interactive"] * (EVERY - 1), "batch"] * 3


def test_who_starts_with_nobody_before_it_does_not_starve() -> None:
    turns = waiting("interactive", "batch")
    turns.started("batch", [], POOL, STARVED_AFTER)
    assert starts(turns, BOTH, 9, now=STARVED_AFTER + 1) == ["interactive"] * 9


def test_every_lower_class_has_a_share() -> None:
    kinds: list[PriorityClass] = ["interactive", "default", "batch"]
    started = starts(waiting(*kinds), kinds, 40, now=STARVED_AFTER)
    assert all(started.count(kind) >= len(started) // EVERY - 1 for kind in kinds)


def test_other_models_starve_on_their_own() -> None:
    turns = waiting("interactive", "batch")
    turns.waits("batch", "n", 0.0)
    starts(turns, BOTH, EVERY - 1, now=STARVED_AFTER)
    assert turns.next(BOTH, ("n",), STARVED_AFTER) == "interactive"
    assert turns.next(BOTH, ("m",), STARVED_AFTER) == "batch"
    turns.empty("batch", "m")
    turns.check_integrity({("interactive", "m"), ("batch", "n")})
