from math import inf

from arriero.balancer.control.demand import (
    IDLE,
    IDLE_AFTER,
    IN_TURN,
    MIN_TURN,
    PATIENCE,
    PRELOADED,
    RETURN,
    WAITING,
    Demand,
    Tiers,
    Usage,
)
from arriero.balancer.control.desired_state import DesiredModel
from arriero.balancer.control.members import Member, member_of
from arriero.shared.models.assignments import Work
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


def changing(to: DesiredModel | None, *, num_running: int = 1, **fields: object) -> Member:
    """It has `m`, and is to serve another model; without `finishing` it still serves it."""
    told = None if to is None else to.assignment
    work = Work(
        revision=1, assignment=told, phase="draining" if "finishing" in fields else "fetching"
    )
    if "finishing" not in fields:
        fields["serves"] = "m"
    return member_of(report("a", work=work, num_running=num_running, **fields), None)


def used(*, for_how_long: float) -> Usage:
    """`m` has been in use at its agent since 0."""
    usage = Usage()
    for now in (0.0, for_how_long):
        tiers(usage, now, serving(M, num_running=1))
    return usage


def test_a_model_in_use_is_kept_where_another_is_fetched_for_nobody() -> None:
    usage = used(for_how_long=30.0)
    fetching = changing(N)
    found = tiers(usage, 30.0, fetching, n=20.0)
    assert (found.tiers, found.recalled) == ({"n": IN_TURN}, {})
    found = tiers(usage, 31.0, fetching)
    assert found.tiers == {"m": IN_TURN}
    assert [each.model for each in found.recalled.values()] == ["m"]


def test_one_that_is_not_in_use_is_not() -> None:
    usage = used(for_how_long=30.0)
    found = tiers(usage, 31.0, changing(N, num_running=0))
    assert (found.tiers, found.recalled) == ({"n": IN_TURN}, {}), "who asks again finds it"
    found = tiers(usage, 31.0, changing(N, num_running=0), m=31.0)
    assert list(found.recalled) == ["a"], "somebody waits for it"


def test_a_drain_is_taken_back_some_time_after_those_have_gone_that_it_was_for() -> None:
    usage = used(for_how_long=30.0)
    draining = changing(N, finishing="m")
    found = tiers(usage, 30.0, draining, n=20.0)
    assert (found.tiers, found.recalled) == ({"n": WAITING, "m": IDLE}, {})
    found = tiers(usage, 31.0, draining, m=30.5)
    assert (found.tiers, found.recalled) == ({"n": WAITING, "m": IDLE}, {}), "they may come back"
    assert found.reconcile_at == 30.0 + RETURN
    found = tiers(usage, 32.0, draining, n=32.0)
    assert (found.tiers, found.recalled) == ({"n": WAITING, "m": IDLE}, {}), "so they did"
    found = tiers(usage, 32.0 + RETURN, draining)
    assert found.tiers == {"m": IN_TURN}
    assert [each.model for each in found.recalled.values()] == ["m"]
    found = tiers(usage, 32.0 + RETURN, draining, n=20.0)
    assert found.tiers == {"n": WAITING, "m": IDLE}, "it had its turn all the while"


def test_so_is_one_of_another_place_of_the_host() -> None:
    usage = used(for_how_long=30.0)
    draining = changing(None, finishing="m", host="h")
    told = report("b", told=N.assignment, phase="draining", host="h")
    coming = member_of(told, None)
    found = tiers(usage, 30.0, draining, coming, n=20.0)
    assert (found.tiers, found.recalled) == ({"n": WAITING, "m": IDLE}, {})
    found = tiers(usage, 30.0 + RETURN, draining, coming)
    assert (found.tiers, list(found.recalled)) == ({"m": IN_TURN}, ["a"])


def test_a_drain_for_a_model_that_is_to_be_there_always_goes_on() -> None:
    usage = used(for_how_long=30.0)
    always = wished("n")
    found = usage.tiers([M, always], [changing(always, finishing="m")], {}, 60.0)
    assert (found.tiers["n"], found.recalled) == (PRELOADED, {})


def test_what_was_to_make_room_for_a_model_that_is_desired_no_more_is_kept() -> None:
    usage = used(for_how_long=30.0)
    found = usage.tiers([M], [changing(N, finishing="m", num_running=0)], {}, 31.0)
    assert (found.tiers, list(found.recalled)) == ({"m": IN_TURN}, ["a"])
