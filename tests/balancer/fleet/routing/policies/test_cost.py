"""Which agent a request costs the fewest seconds at."""

from dataclasses import replace

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.policies.cost import LeastCost
from arriero.balancer.fleet.routing.policy import Choice, Load, LoadOf
from arriero.balancer.fleet.routing.rates import Measurement
from arriero.shared.inference import GenerateRequest, Rates, RequestId, Usage
from arriero.shared.inference.prefix_chain import NO_CHAIN, PrefixChain, chain_of
from arriero.shared.inference.prefix_peers import Peer

A, B, C = LinkId(1), LinkId(2), LinkId(3)
LONG = "A conversation that was long. " * 400
IDLE = Load(running=0, slots=2, has_free_slot=True)
HALF = replace(IDLE, running=1)
FULL = replace(IDLE, running=2, has_free_slot=False)


def chain(text: str = LONG) -> PrefixChain:
    return chain_of(GenerateRequest(prompt=text))


def router(*links: LinkId, longest_wait: float = 10.0) -> LeastCost:
    made = LeastCost(longest_wait)
    for link in links or (A, B):
        made.agent_is(link, "m", 10_000)
    return made


def end(prefill: float = 500.0, decode: float = 20.0, *, seconds: float = 5.0) -> Measurement:
    return Measurement(
        Usage(prompt_tokens=3000, completion_tokens=20),
        Rates(prefill_tokens_per_second=prefill, decode_tokens_per_second=decode),
        running=1,
        seconds=seconds,
    )


def run(router: LeastCost, id: str, link: LinkId, text: str = LONG, *, cached: int = 0) -> None:
    """A request from its start to its end."""
    router.started(RequestId(id), link, chain(text))
    router.prompt_read(RequestId(id), len(text) // 4, cached)
    router.ended(RequestId(id), end())
    router.check_integrity()


def among(loads: dict[LinkId, Load]) -> LoadOf:
    return loads.get


def test_what_nobody_has_computed_goes_where_the_load_is_least() -> None:
    made = router()
    assert made.choose(chain(), load_of=among({A: IDLE, B: IDLE}), free=B) == Choice(B)
    assert made.choose(NO_CHAIN, load_of=among({A: IDLE, B: IDLE}), free=B) == Choice(B)
    assert made.choose(chain(), load_of=among({A: FULL}), free=None) is None


def test_a_conversation_returns_to_the_agent_that_has_it() -> None:
    made = router()
    run(made, "1", A)
    longer = chain(LONG + "And now?")
    assert made.choose(longer, load_of=among({A: HALF, B: IDLE}), free=B) == Choice(A)
    assert made.choose(chain("other " * 900), load_of=among({A: HALF, B: IDLE}), free=B) == Choice(
        B
    )
    made.started(RequestId("2"), A, longer)
    assert (made.counts.warm, made.counts.cold) == (1, 1)


def test_a_prefix_that_takes_no_time_is_not_worth_a_busy_agent() -> None:
    made = router()
    short = "x" * 100
    run(made, "1", A, short)
    assert made.choose(chain(short), load_of=among({A: HALF, B: IDLE}), free=B) == Choice(B)


def test_a_full_agent_is_waited_for_as_long_as_that_pays() -> None:
    made = router()
    run(made, "1", A)
    choice = made.choose(chain(), load_of=among({A: FULL, B: IDLE}), free=B)
    assert choice is not None
    assert choice.link == A
    cold = 3000 / 500  # seconds for the prompt elsewhere
    assert 0 < choice.patience <= cold
    loads = among({A: FULL, B: IDLE})
    assert made.choose(chain(), load_of=loads, free=B, may_wait=False) == Choice(B)


def test_nobody_waits_behind_many() -> None:
    made = router()
    run(made, "1", A)
    crowded = replace(FULL, waiting=9)
    assert made.choose(chain(), load_of=among({A: crowded, B: IDLE}), free=B) == Choice(B)


def test_patience_has_a_bound() -> None:
    made = router(longest_wait=0.5)
    run(made, "1", A)
    choice = made.choose(chain(), load_of=among({A: FULL, B: IDLE}), free=B)
    assert choice == Choice(A, 0.5)


def test_an_agent_that_may_not_have_it_is_no_candidate() -> None:
    made = router()
    run(made, "1", A)
    assert made.choose(chain(), load_of=among({B: IDLE}), free=B) == Choice(B)


def test_an_agent_that_left_or_has_another_model_holds_nothing() -> None:
    for change in (
        lambda made: made.agent_left(A),
        lambda made: made.agent_is(A, "other", 10_000),
        lambda made: made.agent_is(A, None, 0),
    ):
        made = router()
        run(made, "1", A)
        change(made)
        assert made.num_beliefs == 0
        assert made.choose(chain(), load_of=among({A: IDLE, B: IDLE}), free=B) == Choice(B)


def test_a_change_of_slots_alone_forgets_nothing() -> None:
    made = router()
    run(made, "1", A)
    known = made.num_beliefs
    made.agent_is(A, "m", 5_000)
    assert made.num_beliefs == known > 0


def test_an_agent_is_believed_to_hold_no_more_than_its_cache_does() -> None:
    made = router()
    made.agent_is(A, "m", 1000)
    run(made, "1", A)
    some = made.num_beliefs
    made.cache_is(A, 100_000)
    run(made, "2", A)
    assert 0 < some < made.num_beliefs


def test_an_agent_whose_cache_disappoints_is_trusted_less() -> None:
    made = router()
    run(made, "1", A)
    for number in range(30):
        run(made, f"again {number}", A, cached=0)
    assert made.choose(chain(), load_of=among({A: HALF, B: IDLE}), free=B) == Choice(B)


def test_a_prompt_that_is_being_computed_counts_as_held_and_as_work() -> None:
    made = router()
    run(made, "0", B, "something else " * 99)
    made.started(RequestId("1"), A, chain())
    other = chain("other " * 2000)
    loads = among({A: HALF, B: HALF})
    assert made.rank(A, HALF) > made.rank(B, HALF)
    made.prompt_read(RequestId("1"), 3000, 0)
    assert made.rank(A, HALF) == made.rank(B, HALF)
    assert made.choose(chain(), load_of=loads, free=B) == Choice(A)
    assert made.choose(other, load_of=loads, free=B) == Choice(B)


def test_before_anything_is_measured_agents_rank_by_their_share_of_taken_slots() -> None:
    made = router()
    assert made.rank(A, HALF) == 0.5
    assert made.rank(A, IDLE) == 0.0


def test_a_fast_agent_ranks_before_slow_ones_until_it_has_its_share() -> None:
    made = router()
    made.started(RequestId("1"), A, chain())
    made.ended(RequestId("1"), end(prefill=5000.0, decode=200.0))
    made.started(RequestId("2"), B, chain())
    made.ended(RequestId("2"), end(prefill=100.0, decode=5.0))
    busy = Load(running=3, slots=8, has_free_slot=True)
    assert made.rank(A, busy) < made.rank(B, IDLE)
    assert made.rank(A, replace(busy, running=200, slots=400)) > made.rank(B, IDLE)


def test_agents_that_are_alike_rank_by_load() -> None:
    made = router()
    for id, link, decode in (("1", A, 20.0), ("2", B, 20.4)):
        made.started(RequestId(id), link, chain(id * 999))
        made.ended(RequestId(id), end(decode=decode))
    wide = Load(running=1, slots=9, has_free_slot=True)
    assert made.rank(A, wide) < made.rank(B, replace(wide, slots=3))


def test_waits_and_those_that_gave_up_are_counted() -> None:
    made = router()
    made.started(RequestId("1"), A, chain(), waited_for=A)
    made.started(RequestId("2"), B, chain(), waited_for=A)
    assert (made.counts.waited, made.counts.gave_up) == (2, 1)


def keyed(
    made: LeastCost, id: str, link: LinkId, text: str, *, share: float, key: int | None = 7
) -> None:
    """A request under a cache key, of which so much was cached."""
    made.started(RequestId(id), link, chain(text), cache_key=key)
    made.prompt_read(RequestId(id), 1000, int(1000 * share))
    made.ended(RequestId(id), end())


def test_requests_of_one_cache_key_go_where_the_last_one_went() -> None:
    made = router()
    keyed(made, "1", A, "first " * 2000, share=0)
    assert made.num_cache_keys == 1
    loads = among({A: IDLE, B: IDLE})
    other = chain("second " * 2000)
    assert made.choose(other, load_of=loads, free=B, cache_key=7) == Choice(A)
    assert made.choose(other, load_of=loads, free=B, cache_key=8) == Choice(B)
    assert made.choose(other, load_of=loads, free=B) == Choice(B)
    made.agent_left(A)
    assert made.choose(other, load_of=among({B: IDLE}), free=B, cache_key=7) == Choice(B)


def test_a_cache_key_that_saves_nothing_is_left_for_little() -> None:
    made = router()
    for number in range(12):
        keyed(made, str(number), A, f"{number} " * 4000, share=0)
    other, loads = chain("more " * 2000), among({A: HALF, B: IDLE})
    assert made.choose(other, load_of=loads, free=B, cache_key=7) == Choice(B)
    idle = among({A: IDLE, B: IDLE})
    made.agent_left(B)
    made.agent_is(B, "m", 1_000_000)
    assert made.choose(other, load_of=idle, free=B, cache_key=8) == Choice(B)


def test_a_cache_key_that_saves_much_is_worth_a_busy_agent() -> None:
    made = router()
    for number in range(12):
        keyed(made, str(number), A, f"{number} " * 4000, share=0.95)
    other, loads = chain("more " * 2000), among({A: HALF, B: IDLE})
    assert made.choose(other, load_of=loads, free=B, cache_key=7) == Choice(A)
    assert made.choose(other, load_of=loads, free=B, cache_key=8) == Choice(B)


def test_what_an_agent_has_evicted_is_not_believed_any_more() -> None:
    made = router()
    run(made, "1", A)
    keys = chain().keys
    made.evicted(A, keys[-3:])
    assert made.counts.evicted == 3
    assert [made.believes(A, key) for key in keys[-4:]] == [True, False, False, False]
    made.evicted(A, None)
    assert made.counts.evicted == len(keys)
    assert made.choose(chain(), load_of=among({A: HALF, B: IDLE}), free=B) == Choice(B)
    made.check_integrity()


def test_what_was_evicted_before_a_request_came_is_there_once_that_is_read() -> None:
    made = router()
    run(made, "1", A)
    made.started(RequestId("2"), A, chain())
    made.evicted(A, chain().keys)
    assert not made.believes_in(A)
    made.prompt_read(RequestId("2"), 3000, 0)
    assert made.believes(A, chain().keys[-1])
    made.check_integrity()


def test_nothing_more_is_believed_for_a_prompt_that_was_never_read() -> None:
    made = router()
    run(made, "1", A)
    longer = chain(LONG + "More of it. " * 400)
    made.started(RequestId("2"), A, longer)
    assert made.believes(A, longer.keys[-1])
    made.ended(RequestId("2"), None)
    assert not made.believes(A, longer.keys[-1])
    assert made.believes(A, chain().keys[-2])
    made.check_integrity()


PEER = Peer(address="h:1", tls=False, cells="c", cell_bytes=1000)


def peers(*, cell_bytes: int = 1000) -> LeastCost:
    """A, which has computed the long prompt, and B."""
    made = LeastCost()
    for link in (A, B):
        made.agent_is(link, "m", 10_000, replace(PEER, cell_bytes=cell_bytes))
    run(made, "1", A)
    return made


def test_what_a_full_agent_holds_is_fetched_by_a_free_one() -> None:
    made = peers()
    choice = made.choose(chain(), load_of=among({A: FULL, B: IDLE}), free=B)
    assert choice is not None and (choice.link, choice.patience) == (B, 0.0)
    assert choice.fetching is not None and choice.fetching.source == A
    made.started(RequestId("2"), B, chain(), fetching=choice.fetching)
    made.check_integrity()
    assert (made.counts.fetching, made.counts.cold) == (1, 2)
    # Little of it is left to compute: the next one need not wait for that.
    assert made._backlog.get(B, 0.0) < 1500
    made.ended(RequestId("2"), end())
    made.check_integrity()


def test_what_takes_longer_to_fetch_is_computed_or_waited_for() -> None:
    made = peers(cell_bytes=10**9)
    choice = made.choose(chain(), load_of=among({A: FULL, B: IDLE}), free=B, may_wait=False)
    assert choice == Choice(B)
    assert made.choose(chain(), load_of=among({A: IDLE, B: IDLE}), free=B) == Choice(A)


def test_who_holds_it_and_is_free_needs_to_fetch_nothing() -> None:
    made = peers()
    assert made.choose(chain(), load_of=among({A: IDLE, B: IDLE}), free=B) == Choice(A)
    made.agent_left(A)
    assert made.choose(chain(), load_of=among({B: IDLE}), free=B) == Choice(B)


def test_what_is_on_an_agents_disk_is_believed_again_when_it_is_back() -> None:
    made, home = LeastCost(), ("one", "disk")
    made.agent_is(A, "m", 10_000, home=home)
    made.agent_is(B, "m", 10_000)
    run(made, "1", A)
    made.agent_left(A)
    assert made.choose(chain(), load_of=among({B: IDLE}), free=B) == Choice(B)
    made.agent_is(C, "m", 100, home=home)
    assert made.choose(chain(), load_of=among({B: IDLE, C: IDLE}), free=B) == Choice(C)
    run(made, "2", C, cached=3000)
    assert made.believes_in(C), "more than the estimate is known to be there"
    made.agent_is(C, "other", 100, home=("one", "other"))
    assert not made.believes_in(C)
    made.agent_is(C, "m", 100, home=home)
    assert made.believes_in(C)
    made.check_integrity()


def test_a_state_counts_for_what_a_fetch_takes() -> None:
    made = peers()
    made.agent_is(B, "m", 10_000, replace(PEER, cell_bytes=1000, state_bytes=10**10))
    choice = made.choose(chain(), load_of=among({A: FULL, B: IDLE}), free=B, may_wait=False)
    assert choice == Choice(B)
