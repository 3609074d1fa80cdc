"""Remembers agents that sent impossible messages: how long each must stay away, and its issue.

A bad message closes the agent's connection. The agent may connect again after a pause, which grows
with each bad message until the agent has sent none for `MEMORY` seconds. Operators see an issue
during this time.

Invariant: at most `MAX_REMEMBERED` agents are remembered, the latest offenders.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from ...shared.inference import AgentId
from ...shared.messages import MAX_WORDS, Issue
from ..access.identity import Identity

CODE = "bad_messages"
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
MEMORY = 600.0
MAX_REMEMBERED = 1024


class BadMessage(Exception):
    """A message of an agent that cannot be true.

    The balancer ignores the whole message and closes the agent's connection.
    """


class Speaker(NamedTuple):
    """The sender of a message: the agent id, and the access key if the agent has one.

    Two agents with the same id and different keys are two speakers.
    """

    key: str | None
    id: AgentId


def speaker_of(holder: Identity | None, id: AgentId) -> Speaker:
    """Return the agent with this id that connected with the key of `holder`."""
    return Speaker(None if holder is None else holder.name, id)


@dataclass(slots=True)
class Offence:
    """The last bad message of an agent, at the time `at`. `num` counts all its bad messages."""

    reason: str
    at: float
    num: int = 1

    @property
    def until(self) -> float:
        """The time from which the agent may connect again."""
        return self.at + min(FIRST_PAUSE * 2.0 ** min(self.num - 1, 32), LONGEST_PAUSE)

    def issue(self, now: float) -> Issue | None:
        """Return the issue for operators, or `None` if the last bad message is too long ago."""
        if now - self.at > MEMORY:
            return None
        times = "" if self.num == 1 else f", for the {self.num}th time"
        message = (
            f"the agent's connection was closed {now - self.at:.0f} s ago{times}, because it "
            f"sent a bad message: {self.reason}"
        )
        return Issue(
            code=CODE,
            message=message[:MAX_WORDS],
            hint=(
                "install the same version on agent and balancer; if the versions are the same, "
                "do not trust this host any more"
            ),
        )


class BadMessages:
    """The agents that sent bad messages, in the order of their last bad message."""

    def __init__(self) -> None:
        self._offences: OrderedDict[Speaker, Offence] = OrderedDict()
        self.total = 0
        """The number of connections closed because of bad messages."""

    def __len__(self) -> int:
        return len(self._offences)

    def came_from(self, speaker: Speaker, reason: str, now: float) -> Offence:
        """Record that the balancer closes the agent's connection because of `reason`."""
        self.total += 1
        before = self.of(speaker, now)
        offence = Offence(reason, now, 1 if before is None else before.num + 1)
        self._offences[speaker] = offence
        self._offences.move_to_end(speaker)
        if len(self._offences) > MAX_REMEMBERED:
            self._offences.popitem(last=False)
        return offence

    def of(self, speaker: Speaker, now: float) -> Offence | None:
        """Return the agent's last bad message, or `None` if it is too long ago."""
        offence = self._offences.get(speaker)
        if offence is not None and now - offence.at > MEMORY:
            del self._offences[speaker]
            return None
        return offence
