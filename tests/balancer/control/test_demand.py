from math import inf

from arriero.balancer.control.demand import (
    IDLE,
    IDLE_AFTER,
    IN_TURN,
    MIN_TURN,
    PATIENCE,
    PRELOADED,
    WAITING,
    Demand,
    Tiers,
    Usage,
)
from arriero.balancer.control.desired_state import DesiredModel
from arriero.balancer.control.members import Member, member_of
from tests.balancer.control.builders import report, wished

M = wished("m", preload=False)
N = wished("n", preload=False)


def serving(model: DesiredModel, *, num_running: int = 0, used_at: float = -inf) -> Member:
    return member_of(
        report(model.name, told=model.assignment, num_running=num_running, used_at=used_at), None
    )


def tiers(usage: Usage, now: float, *members: Member, **demands: float) -> Tiers:
    waiting = {name: Demand(1, since) for name, since in demands.items()}
    return usage.tiers([M, N], members, waiting, now)


def test_a_model_to_preload_is_in_demand_always() -> None:
    assert Usage().tiers([wished("m")], [], {}, 0.0) == Tiers({"m": PRELOADED})


def test_a_model_on_demand_is_in_demand_when_a_request_waits() -> None:
    usage = Usage()
    assert tiers(usage, 0.0) == Tiers({})
    assert tiers(usage, 0.0, m=0.0) == Tiers({"m": WAITING}, PATIENCE)


def test_an_idle_model_gives_way() -> None:
    usage = Usage()
    assert tiers(usage, 0.0, serving(M), n=0.0).tiers == {"m": IN_TURN, "n": WAITING}
    found = tiers(usage, IDLE_AFTER, serving(M), n=IDLE_AFTER)
    assert found.tiers == {"m": IDLE, "n": WAITING}


def test_a_busy_model_has_its_turn() -> None:
    usage = Usage()
    busy = serving(M, num_running=1)
    assert tiers(usage, 0.0, busy) == Tiers({"m": IN_TURN}), "nobody waits, so nobody looks"
    assert tiers(usage, 0.0, busy, n=0.0) == Tiers({"m": IN_TURN, "n": WAITING}, IDLE_AFTER)
    found = tiers(usage, PATIENCE, busy, n=0.0)
    assert found == Tiers({"m": IN_TURN, "n": WAITING}, PATIENCE + IDLE_AFTER)
    assert tiers(usage, MIN_TURN, busy, n=0.0).tiers == {"m": IDLE, "n": WAITING}


def test_a_model_that_loads_is_not_taken_for_idle() -> None:
    loading = member_of(report("a", told=M.assignment, phase="loading"), None)
    assert tiers(Usage(), 100.0, loading, n=0.0).tiers["m"] == IN_TURN


def test_a_model_may_be_unloaded_when_it_was_not_used_for_long() -> None:
    model = wished("m", idle_timeout=60.0)
    usage = Usage()
    assert usage.tiers([model], [serving(model)], {}, 0.0) == Tiers({"m": PRELOADED}, 60.0)
    used = serving(model, used_at=50.0)
    assert usage.tiers([model], [used], {}, 60.0) == Tiers({"m": PRELOADED}, 110.0)
    busy = serving(model, num_running=1)
    assert usage.tiers([model], [busy], {}, 100.0) == Tiers({"m": PRELOADED}, 160.0)
    assert usage.tiers([model], [serving(model)], {}, 160.0) == Tiers({})
    waiting = {"m": Demand(1, 170.0)}
    assert usage.tiers([model], [], waiting, 170.0).tiers == {"m": PRELOADED}


def test_what_nobody_wishes_for_is_not_remembered() -> None:
    usage = Usage()
    model = wished("m", idle_timeout=60.0)
    assert usage.tiers([model], [], {}, 0.0).reconcile_at == 60.0
    assert usage.tiers([], [], {}, 30.0) == Tiers({})
    assert usage.tiers([model], [], {}, 30.0).reconcile_at == 90.0
