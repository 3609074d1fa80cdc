"""The routing policies by the values of `--routing`. A further one is a file here and its entry."""

from ..policy import RoutingPolicy
from .cost import LeastCost
from .load import LeastLoad
from .two_choices import TwoChoices

POLICIES: dict[str, type[RoutingPolicy]] = {
    "cost": LeastCost,
    "load": LeastLoad,
    "two-choices": TwoChoices,
}
