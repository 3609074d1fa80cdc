"""One query: its parts, their results, and its deadline.

A query waits in the queue while no agent has a part of it. If the last agent with a part is lost,
the query returns to the queue for its remaining time.

Invariant: a query has a result for each part, or one error; and one end.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ....shared.errors import RequestError, RequestTimeout
from ....shared.inference import GenerateRequest, RequestId, Timings, Usage
from ....shared.inference.request import Sense
from ....shared.queries import (
    Counted,
    CountTokens,
    DescribeTokenizer,
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
    TokenizerDescription,
)
from ....shared.reports.model_info import Task
from ..caller import ANONYMOUS, Account, Caller
from ..decisions import Finish, LinkId, Settle
from ..lifecycle import Lifecycle, NotServed
from ..limits import Limits
from ..recorder import Ending
from ..requests.dispatched import Dispatched
from ..requests.eligibility import QueueKey
from ..requests.fair_order import Item

Kind = Literal["text", "embed", "rank"]
Lane = Literal["text", "vision", "audio", "embed", "rank"]
"""The queue in which a query waits, since not every agent accepts pictures or sounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """One call of a client: `parts` of one kind, for `model`; `None` stands for any model."""

    kind: Kind
    parts: tuple[Query, ...]
    model: str | None = None

    @property
    def task(self) -> Task | None:
        """The ability that the model needs; `None` if every model has it."""
        if self.kind != "text":
            return self.kind
        return next(iter(self.senses), None)

    @property
    def lane(self) -> Lane:
        """The lane in which the query waits.

        A query with pictures and sounds waits in the lane of sounds.
        """
        return self.senses[-1] if self.kind == "text" and self.senses else self.kind

    @property
    def senses(self) -> tuple[Sense, ...]:
        """The abilities that the model needs for the query's media."""
        counted = self.first_with_media
        return () if counted is None else counted.senses

    @property
    def first_with_media(self) -> GenerateRequest | None:
        """The first request with media whose tokens have to be counted, if any."""
        counted = (part.request for part in self.parts if isinstance(part, CountTokens))
        return next((request for request in counted if request.senses), None)


class QueryLifecycle(Lifecycle):
    """A query from its acceptance to its end. `agent` is the last agent that got a part.

    `parts` are the parts without a result, by id; `num_waiting` of them have no agent.
    """

    __slots__ = ("lane", "num_waiting", "parts", "results")

    asked: QueryRequest

    def __init__(
        self,
        id: RequestId,
        asked: QueryRequest,
        limits: Limits,
        now: float,
        *,
        caller: Caller = ANONYMOUS,
    ) -> None:
        super().__init__(id, asked, limits, now, caller=caller)
        self.lane = asked.lane
        self.results: dict[int, Result] = {}
        self.parts: dict[RequestId, Part] = {}
        self.num_waiting = 0

    def split(self) -> list["Part"]:
        """Return the parts of an accepted query."""
        parts = [Part(self, number) for number in range(len(self.asked.parts))]
        self.parts = {part.id: part for part in parts}
        return parts

    @property
    def is_complete(self) -> bool:
        """Whether all parts have their results."""
        return len(self.results) == len(self.asked.parts)

    def renamed(self, names: Mapping[str, str]) -> None:
        """Use the new name of the query's model."""
        name = self.asked.model or ""
        self.asked = replace(self.asked, model=names.get(name, name))
        self.model = self.asked.model

    def overdue(self, now: float, lack: NotServed | None = None) -> RequestError | None:
        """Return the error with which the query has to end at `now`, if its deadline has passed.

        `lack`: why no agent serves the query's model.
        """
        if now < self.deadline:
            return None
        if self.expires_at <= self._queue_deadline:
            return RequestTimeout(f"not answered within {self._limits.request_timeout:g} s")
        return self._queue_timeout("no agent was free", lack)

    def answer(self) -> Settle:
        """Return the query's results, in the order of its parts."""
        return Settle(self.id, tuple(self.results[n] for n in range(len(self.asked.parts))))

    def finish(self, code: str, now: float, error: RequestError | None = None) -> Finish:
        """End the query, and return its record."""
        return Finish(
            Ending(
                code=code,
                request_id=self.id,
                agent=self.agent,
                caller=self.caller,
                model=self.model,
                usage=Usage(prompt_tokens=sum(map(_num_tokens, self.results.values()))),
                timings=Timings(
                    queue_ms=self.waited(now) * 1000,
                    first_token_ms=None,
                    total_ms=self.total_ms(now),
                ),
                error=error,
                kind=self.asked.kind,
                num_inputs=sum(map(_num_inputs, self.asked.parts)),
            )
        )


class Part(Dispatched):
    """The part `number` of a query. In the queue, the queries of a caller take turns."""

    __slots__ = (
        "account",
        "arrival",
        "assigned_at",
        "expected_charge",
        "id",
        "number",
        "of",
        "place",
        "slot",
        "turn",
        "waits_for",
    )

    def __init__(self, of: QueryLifecycle, number: int) -> None:
        self.id = RequestId(f"{of.id}.{number}")
        self.of = of
        self.number = number
        self.account = of.account
        self.expected_charge = _num_inputs(self.query)
        self.arrival = 0
        self.assigned_at = 0.0
        self.slot: LinkId | None = None
        self.waits_for: QueueKey = None
        self.place: Item[Hashable, QueueKey, Part] | None = None
        self.turn: Item[Account, QueueKey, None] | None = None

    @property
    def query(self) -> Query:
        """Return the part as a query for an agent."""
        return self.of.asked.parts[self.number]

    @property
    def queue_key(self) -> QueueKey:
        """The key of the queue: any agent of the model that answers such queries may take the
        part.
        """
        return self.of.asked.model

    @property
    def flow(self) -> RequestId:
        """The flow within the caller's share: the part's query.

        So a small query never waits for a whole large query.
        """
        return self.of.id


def fits(query: Query, result: Result) -> bool:
    """Return whether the result has the form that `query` demands."""
    match query, result:
        case Embed(), Embedded():
            return len(query.inputs) == len(result.vectors)
        case Rank(), Ranked():
            return len(query.documents) == len(result.scores)
        case (Tokenize(), Tokenized()) | (Detokenize(), Detokenized()) | (CountTokens(), Counted()):
            return True
        case DescribeTokenizer(), TokenizerDescription():
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
