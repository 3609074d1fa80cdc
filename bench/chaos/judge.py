"""The judge: what became of a request, against its known answer and the faults that touched it.

Every request of a client that stayed ends exactly once: with its whole, right text, or with an
error that a fault allows which touched it, after a beginning of the right text. And it is never
silent for longer than the faults allow which struck meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.chaos.faults import Kind
from bench.chaos.record import DONE, Record
from integration_tests.folding import TEXTS

AFTERMATH = 2.0
"""Seconds for which a fault that is over still counts: agents come back, packets are sent again."""

AGENTS_LOST = 2
"""A request that lost this many agents ends with an error (`Moves` of `balancer`)."""

REPEATING = frozenset(["responses"])
"""Kinds of answers that have their whole text again at the end, so that no half is a beginning."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One fault as it was; `end` is when what it struck was well again."""

    kind: Kind
    begin: float
    end: float

    def touches(self, begin: float, end: float) -> bool:
        """Whether it may have had to do with what was from `begin` to `end`."""
        return self.begin <= end and begin <= self.end + AFTERMATH

    @property
    def allowed_pause(self) -> float:
        """The silence that it may add."""
        return self.kind.allowed_pause(self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Answer:
    """The right answer of one kind of request: its events folded, and how many ends it has."""

    said: Any
    num_endings: int


class Judge:
    """`quiet` is the longest silence without any fault, in seconds."""

    def __init__(self, answers: Mapping[str, Answer], quiet: float) -> None:
        self._answers = answers
        self._quiet = quiet

    def findings(self, record: Record, episodes: Sequence[Episode]) -> list[str]:
        """What is wrong with `record`; empty if nothing is."""
        touching = [each for each in episodes if each.touches(record.sent_at, record.ended_at)]
        return [
            *self._of_outcome(record, touching),
            *self._of_text(record),
            *self._of_silence(record, touching),
        ]

    def allowed_silence(self, begin: float, end: float, episodes: Iterable[Episode]) -> float:
        """How long the silence from `begin` to `end` may be."""
        touching = (each for each in episodes if each.touches(begin, end))
        return self._quiet + sum(each.allowed_pause for each in touching)

    def _of_outcome(self, record: Record, touching: Sequence[Episode]) -> list[str]:
        if record.outcome == "unfinished":
            return ["endless: no end came as long as the client waited"]
        expected = self._answers[record.kind].num_endings
        if len(record.endings) > expected:
            return [f"ended more than once: {record.endings}"]
        if bad := sorted({*record.errors} - _allowed_errors(touching)):
            return [f"ended with {', '.join(bad)}, which nothing allows that touched it"]
        if record.errors or len(record.endings) == expected:
            return []
        if record.outcome == "ended":
            return ["lost: the answer is over without an end"]
        if any(each.kind.breaks for each in touching):
            return []
        return [f"connection {record.outcome}, which nothing allows that touched it"]

    def _of_text(self, record: Record) -> list[str]:
        expected = self._answers[record.kind]
        if record.endings == [DONE] * expected.num_endings:
            return [] if record.said == expected.said else ["wrong answer"]
        if record.kind in REPEATING or not isinstance(record.said, dict):
            return []
        wrong = [
            part
            for part, said in record.said.items()
            if not text_of(expected.said.get(part)).startswith(text_of(said))
        ]
        return [f"wrong beginning of the answer {part!r}" for part in wrong]

    def _of_silence(self, record: Record, touching: Sequence[Episode]) -> list[str]:
        return [
            f"silent for {end - begin:.1f} s, {allowed:.1f} s are allowed"
            for begin, end in record.silences
            if end - begin > (allowed := self.allowed_silence(begin, end, touching))
        ]


def _allowed_errors(touching: Iterable[Episode]) -> set[str]:
    touching = list(touching)
    allowed = {code for each in touching for code in each.kind.errors}
    if sum(each.kind.loses for each in touching) >= AGENTS_LOST:
        allowed.add("agent_lost")
    return allowed


def text_of(said: Any) -> str:
    """All texts of folded events, in order."""
    if isinstance(said, dict):
        return "".join(
            value if key in TEXTS and isinstance(value, str) else text_of(value)
            for key, value in said.items()
        )
    return "".join(map(text_of, said)) if isinstance(said, list) else ""
