from dataclasses import replace

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.requests.routing import RoutingRequest, routing_of
from arriero.shared.inference import GenerateRequest
from tests.balancer.fleet.builders import request

ALICE = Caller("alice")


def test_what_is_known_of_a_text() -> None:
    assert routing_of(request("llama"), ALICE) == RoutingRequest(model="llama", caller=ALICE)


def test_token_ids_are_counted_and_a_stored_prompt_is_named() -> None:
    wanted = GenerateRequest(prompt=(1, 2, 3), cache_key="manual")
    assert routing_of(wanted, ALICE) == RoutingRequest(
        caller=ALICE, prefix_key="manual", num_tokens=3
    )
    assert routing_of(replace(wanted, prompt="text"), ALICE).num_tokens is None
