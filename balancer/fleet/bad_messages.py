"""Agents that said what no honest agent does: how long each has to stay away, and the issue.

Its link ends with the first such message. It may dial again after a pause, which grows with every
time until it has behaved for `MEMORY` seconds. For so long operators see an issue of it.

Invariant: at most `MAX_REMEMBERED` agents are remembered, those that offended last.
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
    """An agent's message cannot be true. Nothing of it counts, and the agent's link ends."""


class Speaker(NamedTuple):
    """The sender of a message: an agent with its access key, if any. Agents of two keys are two."""

    key: str | None
    id: AgentId


def speaker_of(holder: Identity | None, id: AgentId) -> Speaker:
    """The agent with this id that came with the key of `holder`."""
    return Speaker(None if holder is None else holder.name, id)


@dataclass(slots=True)
class Offence:
    """One agent's last offence, at `at`, its `num`th."""

    reason: str
    at: float
    num: int = 1

    @property
    def until(self) -> float:
        """When it may dial again."""
        return self.at + min(FIRST_PAUSE * 2.0 ** min(self.num - 1, 32), LONGEST_PAUSE)

    def issue(self, now: float) -> Issue | None:
        """The issue for operators; `None` once it is too long ago."""
        if now - self.at > MEMORY:
            return None
        times = "" if self.num == 1 else f", for the {self.num}th time"
        message = f"its connection was ended {now - self.at:.0f} s ago{times}: {self.reason}"
        return Issue(
            code=CODE,
            message=message[:MAX_WORDS],
            hint="install the same version on both; if it is the same, trust this host no more",
        )


class BadMessages:
    """By agent, oldest offence first."""

    def __init__(self) -> None:
        self._offences: OrderedDict[Speaker, Offence] = OrderedDict()
        self.total = 0
        """How often a link was ended for what came over it."""

    def __len__(self) -> int:
        return len(self._offences)

    def came_from(self, speaker: Speaker, reason: str, now: float) -> Offence:
        """Its link ends because of `reason`."""
        self.total += 1
        before = self.of(speaker, now)
        offence = Offence(reason, now, 1 if before is None else before.num + 1)
        self._offences[speaker] = offence
        self._offences.move_to_end(speaker)
        if len(self._offences) > MAX_REMEMBERED:
            self._offences.popitem(last=False)
        return offence

    def of(self, speaker: Speaker, now: float) -> Offence | None:
        """The last offence, if it was not too long ago."""
        offence = self._offences.get(speaker)
        if offence is not None and now - offence.at > MEMORY:
            del self._offences[speaker]
            return None
        return offence
