"""Agents that sent impossible messages: how long each agent must stay away, and its issue.

The first such message closes the agent's connection. The agent may connect again after a pause.
The pause grows each time, until the agent has behaved for `MEMORY` seconds. During this time
operators see an issue.

Invariant: at most `MAX_REMEMBERED` agents are remembered, the latest ones.
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
    """An agent's message that cannot be true.

    The whole message is ignored, and the agent's connection is closed.
    """


class Speaker(NamedTuple):
    """The sender of a message: an agent id with an access key, if any.

    The same id with two keys is two speakers.
    """

    key: str | None
    id: AgentId


def speaker_of(holder: Identity | None, id: AgentId) -> Speaker:
    """Return the agent with this id that connected with the key of `holder`."""
    return Speaker(None if holder is None else holder.name, id)


@dataclass(slots=True)
class Offence:
    """An agent's last bad message, at `at`; `num` counts them."""

    reason: str
    at: float
    num: int = 1

    @property
    def until(self) -> float:
        """The time from which the agent may connect again."""
        return self.at + min(FIRST_PAUSE * 2.0 ** min(self.num - 1, 32), LONGEST_PAUSE)

    def issue(self, now: float) -> Issue | None:
        """Return the issue for operators; `None` if the offence is too long ago."""
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
    """The agents with bad messages, oldest offence first."""

    def __init__(self) -> None:
        self._offences: OrderedDict[Speaker, Offence] = OrderedDict()
        self.total = 0
        """The number of links that were closed because of their messages."""

    def __len__(self) -> int:
        return len(self._offences)

    def came_from(self, speaker: Speaker, reason: str, now: float) -> Offence:
        """Record a bad message, which closes the agent's connection because of `reason`."""
        self.total += 1
        before = self.of(speaker, now)
        offence = Offence(reason, now, 1 if before is None else before.num + 1)
        self._offences[speaker] = offence
        self._offences.move_to_end(speaker)
        if len(self._offences) > MAX_REMEMBERED:
            self._offences.popitem(last=False)
        return offence

    def of(self, speaker: Speaker, now: float) -> Offence | None:
        """Return the last offence of an agent, unless it is too long ago."""
        offence = self._offences.get(speaker)
        if offence is not None and now - offence.at > MEMORY:
            del self._offences[speaker]
            return None
        return offence
