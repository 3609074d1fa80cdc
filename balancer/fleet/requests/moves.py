"""When a request loses its agent: whether another one gets it, and with which error it ends.

A request whose answer has begun moves only between agents of one fingerprint. One that may be what
ends its agents moves no more.
"""

from dataclasses import dataclass

from ....shared.errors import AgentLost, RequestError, ShuttingDown
from ..recorder import MoveReason

MAX_AGENTS_LOST = 3
"""Agents that may be lost with a request before it is taken for the cause, and ends."""

MAX_LOST_ALONE = 2
"""The same for agents in a row that had no other request."""


@dataclass(slots=True)
class Moves:
    """Of one request: how often it left an agent for another, and why it did the last time.

    `num_given_way` of them were for the sake of others. `num_lost_alone` agents in a row were lost
    with this request alone.
    """

    num: int = 0
    reason: MoveReason | None = None
    num_given_way: int = 0
    num_lost: int = 0
    num_lost_alone: int = 0

    def agent_lost(self, *, is_alone: bool) -> None:
        """Its agent is gone; `is_alone` if that agent had no other request."""
        self.num_lost += 1
        self.num_lost_alone = self.num_lost_alone + 1 if is_alone else 0

    def moved(self, reason: MoveReason) -> None:
        """It leaves an agent for another."""
        self.num += 1
        self.num_given_way += reason == "gave_way"
        self.reason = reason

    @property
    def suspicion(self) -> AgentLost | None:
        """The error of a request that may be what ends its agents."""
        if self.num_lost_alone >= MAX_LOST_ALONE:
            return AgentLost(
                f"{MAX_LOST_ALONE} agents in a row were lost while they ran nothing but this "
                "request, the likely cause"
            )
        if self.num_lost >= MAX_AGENTS_LOST:
            return AgentLost(
                f"{MAX_AGENTS_LOST} agents were lost while they ran this request, the likely cause"
            )
        return None

    def stuck(self, agent: str, seconds: float) -> RequestError:
        """The error of a begun answer with which no agent could go on within `seconds`."""
        nobody = f"no agent with the same model could go on within {seconds:g} s"
        if self.reason in ("drained", "given_back"):
            return ShuttingDown(
                f"the agent {agent} was drained in the middle of the answer, and {nobody}"
            )
        if self.reason == "restarted":
            return AgentLost(
                f"the balancer was restarted in the middle of the answer, and {nobody}"
            )
        return AgentLost(f"the agent {agent} was lost in the middle of the answer, and {nobody}")
