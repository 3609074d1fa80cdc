"""Sessions and requests to test with: of an agent with two slots."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from arriero.agent.engine.prompt_store.writers import Writers
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import (
    ContextShift,
    SequenceEnd,
    SequenceId,
    SequenceOutput,
    SequenceStats,
)
from arriero.agent.generation.prepared import Prepared
from arriero.agent.link.queries import Queries
from arriero.agent.link.requests import Requests
from arriero.agent.link.session import Session
from arriero.agent.link.slots import Slots
from arriero.shared.inference import AgentId, GenerateRequest, Rates, RequestId, Usage
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Ended,
    Hello,
    ModelInfo,
    Piece,
    PromptRead,
    Start,
    Status,
    Welcome,
)

HELLO = Hello(protocol=PROTOCOL_VERSION, agent_id=AgentId("a"), name="box", version="1", slots=2)
STATUS = Status(slots=2, accepting=True)
REQUEST = GenerateRequest(prompt="x", priority=3, prefill_only=True)
SAVING = replace(REQUEST, cache_key="k", save_cache=True)
PREPARED = Prepared(
    prompt=(1, 2, 3),
    sampling=Sampling(seed=1),
    max_tokens=9,
    stop=("!",),
    shift=ContextShift(4, 5),
)
STATS = SequenceStats(
    prompt_tokens=3,
    cached_tokens=0,
    completion_tokens=1,
    prefill_tokens=3,
    prefill_seconds=1.0,
    decode_seconds=None,
)
USAGE = Usage(prompt_tokens=3, completion_tokens=1)
ENDED = Ended(
    id=RequestId("r"),
    finish_reason="stop",
    usage=USAGE,
    rates=Rates(prefill_tokens_per_second=3.0),
)
"""How the request `r` ends with `STATS`, after one token."""
ONE, TWO = SequenceId(1), SequenceId(2)


def start(name: str, request: GenerateRequest = REQUEST) -> Start:
    return Start(id=RequestId(name), request=request)


def cancel(name: str) -> Cancel:
    return Cancel(id=RequestId(name))


def gained(text: str, id: SequenceId = ONE, *, end: SequenceEnd | None = None) -> SequenceOutput:
    return SequenceOutput(id, tuple(text.encode()), end)


def piece(name: str, text: str) -> Piece:
    return Piece(id=RequestId(name), text=text, tokens=tuple(text.encode()))


def prompt_read(name: str) -> PromptRead:
    """What is told of the prompt of `PREPARED` with `STATS`."""
    return PromptRead(id=RequestId(name), prompt_tokens=3, cached_tokens=0)


def welcome(*, interval: float = 1.0, timeout: float = 5.0) -> Welcome:
    return Welcome(
        protocol=PROTOCOL_VERSION,
        version="1",
        heartbeat_interval=interval,
        heartbeat_timeout=timeout,
    )


def numbers() -> Iterator[SequenceId]:
    return map(SequenceId, count(1))


def a_byte(token: int) -> bytes:
    return bytes([token])


def make_requests(
    *,
    slots: Slots | None = None,
    writers: Writers | None = None,
    sequence_ids: Iterator[SequenceId] | None = None,
    piece: Callable[[int], bytes] = a_byte,
) -> Requests:
    return Requests(
        slots=slots or Slots(2),
        writers=writers or Writers(),
        sequence_ids=sequence_ids or numbers(),
        piece=piece,
    )


def make_session(
    requests: Requests | None = None,
    *,
    status: Status = STATUS,
    model: ModelInfo | None = None,
    query_numbers: Iterator[SequenceId] | None = None,
) -> Session:
    return Session(
        hello=replace(HELLO, model=model),
        status=replace(status, model=model),
        requests=make_requests() if requests is None else requests,
        queries=Queries(query_numbers or map(SequenceId, count(101))),
    )
