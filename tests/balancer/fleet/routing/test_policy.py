"""What dispatch expects of every policy."""

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.policies import POLICIES, policy_of
from arriero.balancer.fleet.routing.policy import Load, RoutingPolicy
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.inference.prefix_chain import chain_of
from arriero.shared.reports.statistics import Fetches

CHAIN = chain_of(GenerateRequest(prompt="A conversation that was long. " * 400))
LINKS = [LinkId(number) for number in range(5)]
IDLE = Load(running=0, slots=2, has_free_slot=True)
FULL = Load(running=2, slots=2, has_free_slot=False)


@pytest.mark.parametrize("policy", [*map(policy_of, POLICIES)], ids=POLICIES)
def test_an_agent_with_a_free_slot_is_chosen_and_all_else_is_taken(
    policy: type[RoutingPolicy],
) -> None:
    made = policy(10.0)
    for link in LINKS:
        made.agent_is(link, "m", 10_000)
    loads = {link: IDLE if link == LINKS[2] else FULL for link in LINKS[:4]}
    for number in range(20):
        id = RequestId(str(number))
        choice = made.choose(CHAIN, load_of=loads.get, free=LINKS[2], may_wait=False)
        assert choice is not None and (choice.link, choice.patience) == (LINKS[2], 0.0)
        made.started(id, choice.link, CHAIN, cache_key=7)
        made.prompt_read(id, 3000, 0)
        made.ended(id, None)
    assert made.choose(CHAIN, load_of=loads.get, free=None) is None
    made.rank(LINKS[0], IDLE)
    for link in LINKS:
        made.cache_is(link, 5000)
        made.fetched(link, Fetches())
        made.evicted(link, None)
        made.agent_left(link)
    made.check_integrity()
    assert (made.view.num_beliefs, made.seconds_to_first_token(LINKS[0])) == (0, None)
