"""What the controller's look at the whole fleet costs the balancer, over the number of agents."""

import time
from dataclasses import dataclass
from statistics import median

from arriero.balancer.control.desired_state import AgentChoice, DesiredModel, DesiredState
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId, Send
from arriero.shared.inference import AgentId
from arriero.shared.messages import PROTOCOL_VERSION, Hello, Status
from arriero.shared.models.assignments import Assign, Work
from bench.simulation.fluid_host import HostKind
from bench.simulation.simulated_agent import model_info
from bench.simulation.world import LIMITS

KIND = HostKind(slots=16, cache=65_536)
LOOKS = 5
MODELS = ("m", "n")
SHARE = 0.4
"""The share of all agents for each of the models; the others are spare."""


@dataclass(frozen=True, slots=True)
class Look:
    """Milliseconds of a processor: after a loss, in the median; and of the first placement.

    In that one `num_placed` agents were assigned a model.
    """

    num_agents: int
    num_placed: int
    milliseconds: float
    first_milliseconds: float


def desired_by(num_agents: int) -> DesiredState:
    """Two models."""
    choice = AgentChoice(replicas=max(1, int(num_agents * SHARE)))
    models = [
        DesiredModel(name=name, source=f"file:///{name}.gguf", agents=choice) for name in MODELS
    ]
    return DesiredState(models=tuple(models))


def look_costs(num_agents: int) -> Look:
    """What the controller costs in a fleet without models, and then while one agent after another
    is lost."""
    fleet = Fleet(LIMITS)
    fleet.desire(desired_by(num_agents), 0.0)
    for number in range(num_agents):
        fleet.agent_joined(LinkId(number), _hello(number), 0.0)
    first, orders = _look(fleet)
    for link, order in orders:
        fleet.agent_said(link, _obeyed(order), 1.0)
    _look(fleet)
    later = []
    for number in range(LOOKS):
        fleet.agent_left(LinkId(number), 2.0 + number)
        later.append(_look(fleet)[0])
    return Look(num_agents, len(orders), median(later) * 1000, first * 1000)


def _look(fleet: Fleet) -> tuple[float, list[tuple[LinkId, Assign]]]:
    """How long it takes, and which orders it gives."""
    due = fleet.next_deadline()
    begun = time.thread_time()
    decisions = fleet.tick(due or 0.0)
    seconds = time.thread_time() - begun
    sent = [each for each in decisions if isinstance(each, Send)]
    return seconds, [(e.link, e.message) for e in sent if isinstance(e.message, Assign)]


def _hello(number: int) -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION,
        agent_id=AgentId(f"{number}"),
        name=f"host-{number}",
        version="",
        slots=KIND.slots,
    )


def _obeyed(order: Assign) -> Status:
    name = order.assignment.name if order.assignment else MODELS[0]
    work = Work(revision=order.revision, assignment=order.assignment, phase="serving")
    return Status(slots=KIND.slots, accepting=True, model=model_info(name), work=work)
