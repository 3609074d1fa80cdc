"""Other balancers as this one sees them: each answers for a fleet of its own, or not at all."""

from collections.abc import Mapping

from arriero.balancer.cluster.answers import What
from arriero.balancer.cluster.cluster_view import ClusterView
from arriero.balancer.cluster.questions import Replies, Reply
from arriero.balancer.cluster.responder import Responder
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime


def beside(others: Mapping[str, FleetRuntime | None]) -> ClusterView:
    """The view of a balancer named `here`; others without a fleet are silent."""
    responders = {name: Responder(each) for name, each in others.items() if each is not None}

    async def ask(what: What, about: str) -> Replies:
        answers = {name: each.respond(what, about) for name, each in responders.items()}
        replies = [Reply(name, body) for name, body in answers.items() if body is not None]
        missing = [name for name in others if answers.get(name) is None]
        return Replies(tuple(replies), tuple(missing))

    return ClusterView(ask, lambda: "here" if others else None, clock=lambda: 1000.0)
