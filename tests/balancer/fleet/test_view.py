"""What the views add up by themselves."""

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from tests.balancer.fleet.builders import hello, model_info


def test_models_are_named_once_in_order_and_only_if_they_are_served() -> None:
    fleet = Fleet(Limits())
    for link, model in enumerate(("qwen", "llama", None, "llama")):
        fleet.agent_joined(LinkId(link), hello(f"a{link}", model=model), 0.0)
    assert fleet.view(0.0).models == (model_info("llama"), model_info("qwen"))
    assert fleet.view(0.0).served_name == "llama"


def test_without_a_model_there_is_no_name() -> None:
    assert Fleet(Limits()).view(0.0).served_name == ""
