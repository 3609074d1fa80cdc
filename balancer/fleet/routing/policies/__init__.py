"""The routing policies, by the values of `--routing`.

A new policy needs a file with its name in this folder, and an entry here. The file is imported
only if the policy is chosen, so that `--help` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..policy import RoutingPolicy


class Entry(NamedTuple):
    """The class of a policy, and a description of its rule for the help."""

    class_name: str
    summary: str


POLICIES = {
    "cost": Entry(
        "LeastCost",
        (
            "the seconds that the request would cost on each agent, counting what the agent "
            "has in its cache"
        ),
    ),
    "load": Entry("LeastLoad", "the share of slots in use"),
    "two-choices": Entry(
        "TwoChoices",
        (
            "the share of slots in use on two agents drawn at random, for fleets with several "
            "balancers"
        ),
    ),
}


def policy_of(name: str) -> "type[RoutingPolicy]":
    """Return the class of the policy `name` in `POLICIES`."""
    module = import_module(f".{name.replace('-', '_')}", __name__)
    policy: type[RoutingPolicy] = getattr(module, POLICIES[name].class_name)
    return policy
