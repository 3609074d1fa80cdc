"""The routing policies by the values of `--routing`. A further one is a file here and its entry.

A policy's file has the policy's name. It is imported when the policy is chosen, so that `--help`
does not load what policies need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..policy import RoutingPolicy


class Entry(NamedTuple):
    """A policy's class, and what the policy goes by, as the help says it."""

    class_name: str
    summary: str


POLICIES = {
    "cost": Entry(
        "LeastCost",
        "what each request costs there, in seconds, with what the agent has in its cache",
    ),
    "load": Entry("LeastLoad", "the share of taken slots alone"),
    "two-choices": Entry(
        "TwoChoices",
        "the share of taken slots of two agents that are drawn at random, if several balancers "
        "share the agents",
    ),
}


def policy_of(name: str) -> "type[RoutingPolicy]":
    """The class of the policy that is called `name` in `POLICIES`."""
    module = import_module(f".{name.replace('-', '_')}", __name__)
    policy: type[RoutingPolicy] = getattr(module, POLICIES[name].class_name)
    return policy
