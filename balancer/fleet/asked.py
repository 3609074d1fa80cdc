"""One query's life: its parts with agents, their results, and how long it may take.

Invariant: a result for each part, or one error; and one end.
"""

from dataclasses import dataclass, field
from typing import Literal

from ...shared.errors import QueueTimeout, RequestError, RequestTimeout
from ...shared.inference import RequestId, Timings, Usage
from ...shared.messages import Task
from ...shared.queries import (
    Counted,
    CountTokens,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Query,
    Rank,
    Ranked,
    Result,
    Tokenize,
    Tokenized,
)
from .decisions import Finish, Settle
from .limits import Limits
from .recorder import Ending
from .view import RequestView

Kind = Literal["text", "embed", "rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a client asks in one call, in `parts` of one kind, for `model` or any."""

    kind: Kind
    parts: tuple[Query, ...]
    model: str | None = None

    @property
    def task(self) -> Task | None:
        """What a model must be able to do for it."""
        return None if self.kind == "text" else self.kind


@dataclass(slots=True, eq=False)
class Asked:
    """A question that was accepted."""

    id: RequestId
    question: Question
    limits: Limits
    accepted_at: float
    agent: str | None = None
    begun_at: float | None = None
    num_agents_lost: int = 0
    results: dict[int, Result] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        """When `overdue` will have something to say, as things are."""
        whole = self.accepted_at + self.limits.request_timeout
        if self.begun_at is not None:
            return whole
        return min(whole, self.accepted_at + self.limits.buffered_request_timeout)

    @property
    def is_complete(self) -> bool:
        """Whether every part has its result."""
        return len(self.results) == len(self.question.parts)

    def begins(self, agent: str, now: float) -> None:
        """A part was put to this agent."""
        self.agent = agent
        if self.begun_at is None:
            self.begun_at = now

    def overdue(self, now: float) -> RequestError | None:
        """The error it has to end with at `now`, if its deadline has passed."""
        if now < self.deadline:
            return None
        if self.begun_at is None:
            waited = self.limits.buffered_request_timeout
            return QueueTimeout(f"no agent had room for {waited:g} s")
        return RequestTimeout(f"not answered within {self.limits.request_timeout:g} s")

    def answer(self) -> Settle:
        """Its results, in the order of its parts."""
        return Settle(self.id, tuple(self.results[n] for n in range(len(self.question.parts))))

    def finish(self, code: str, now: float, error: RequestError | None = None) -> Finish:
        """How it ended, for the record."""
        return Finish(
            Ending(
                code=code,
                request_id=self.id,
                agent=self.agent,
                usage=Usage(prompt_tokens=sum(map(_num_tokens, self.results.values()))),
                timings=Timings(
                    queue_ms=((self.begun_at or now) - self.accepted_at) * 1000,
                    first_token_ms=None,
                    total_ms=(now - self.accepted_at) * 1000,
                ),
                error=error,
                kind=self.question.kind,
                num_inputs=sum(map(_num_inputs, self.question.parts)),
            )
        )

    def view(self, now: float) -> RequestView:
        """As others see it; it has no agent of its own."""
        return RequestView(
            id=self.id,
            state="queued" if self.begun_at is None else "assigned",
            model=self.question.model,
            agent=None,
            waited_seconds=(self.begun_at or now) - self.accepted_at,
            age_seconds=now - self.accepted_at,
            num_tokens=0,
            priority=0,
        )


def fits(query: Query, result: Result) -> bool:
    """Whether that is an answer to `query` at all."""
    match query, result:
        case Embed(), Embedded():
            return len(query.inputs) == len(result.vectors)
        case Rank(), Ranked():
            return len(query.documents) == len(result.scores)
        case (Tokenize(), Tokenized()) | (Detokenize(), Detokenized()) | (CountTokens(), Counted()):
            return True
        case _:
            return False


def _num_inputs(query: Query) -> int:
    match query:
        case Embed(inputs=inputs):
            return len(inputs)
        case Rank(documents=documents):
            return len(documents)
        case _:
            return 1


def _num_tokens(result: Result) -> int:
    match result:
        case Embedded(vectors=parts) | Ranked(scores=parts):
            return sum(part.num_tokens for part in parts)
        case _:
            return 0
