"""Agents chosen by the share of taken slots alone."""

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.policies.load import LeastLoad
from arriero.balancer.fleet.routing.policy import Choice, Load
from arriero.balancer.fleet.view import RoutingView
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.inference.prefix_chain import chain_of

A, B = LinkId(1), LinkId(2)
HALF = Load(running=1, slots=2, has_free_slot=True)
CHAIN = chain_of(GenerateRequest(prompt="A conversation that was long. " * 400))


def test_prefixes_and_cache_keys_count_for_nothing() -> None:
    made = LeastLoad()
    for link in (A, B):
        made.agent_is(link, "m", 10_000)
    made.started(RequestId("1"), A, CHAIN, cache_key=7)
    made.prompt_read(RequestId("1"), 3000, 3000)
    assert not made.ended(RequestId("1"), None)
    loads = {A: HALF, B: HALF}.get
    assert made.choose(CHAIN, load_of=loads, free=B, cache_key=7) == Choice(B)
    assert made.choose(CHAIN, load_of=loads, free=None, cache_key=7) is None
    assert made.rank(A, HALF) == 0.5
    assert (made.view, made.seconds_to_first_token(A)) == (RoutingView(), None)
