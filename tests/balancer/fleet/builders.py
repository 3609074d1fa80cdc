"""Messages and requests with the fields that tests rarely care about filled in."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.core.fleet_views import FleetViews
from arriero.balancer.fleet.decisions import Decision, Deliver, DeliverTokens, Finish, Send
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.requests.dispatch.dispatch import AssignSlot, Dispatch
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.token_estimate import LEAST
from arriero.shared.errors import RequestError, to_wire
from arriero.shared.inference import (
    AgentId,
    Event,
    FinishReason,
    GenerateRequest,
    PriorityClass,
    Rates,
    RequestId,
    TokenKind,
    Usage,
)
from arriero.shared.inference.prefix_peers import Peer
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Busy,
    Ended,
    FromBalancer,
    Hello,
    Issue,
    Item,
    Output,
    Piece,
    Refused,
    Status,
)
from arriero.shared.models.assignments import Assignment, HostFacts, Phase, Work
from arriero.shared.reports.model_info import ModelInfo, Upstream


def seen(fleet: Fleet, now: float = 0.0) -> FleetViews:
    """What others see of the core at `now`."""
    return FleetViews(fleet, lambda: now)


class Asking(Request):
    """A request that equals its id, so that tests can name it."""

    def __eq__(self, other: object) -> bool:
        return self.id == (other.id if isinstance(other, Request) else other)

    def __hash__(self) -> int:
        return hash(self.id)

    def __int__(self) -> int:
        return int(self.id)

    def __repr__(self) -> str:
        return self.id


PRIORITIES = {"batch": -1, "default": 0, "interactive": 1}


def asking(
    id: str,
    model: str | None = None,
    *,
    kind: PriorityClass = "default",
    caller: Caller = ANONYMOUS,
    charge: int = LEAST,
    prompt: str = "Once",
) -> Asking:
    """A request as dispatch gets it."""
    asked = GenerateRequest(prompt=prompt, model=model, priority=PRIORITIES[kind])
    made = Asking(RequestId(id), asked, Limits(), 0.0, caller=caller)
    made.expected_charge = charge
    return made


def renamed(dispatch: Dispatch, names: Mapping[str, str]) -> list[AssignSlot]:
    """Models of `names` are called something else now."""
    following = dispatch.following(names)
    for each in following:
        each.asked = replace(each.asked, model=names[each.asked.model or ""])
    return dispatch.renamed(following)


USAGE = Usage(prompt_tokens=3, completion_tokens=2)


def request(
    model: str | None = None,
    *,
    priority: int = 0,
    deadline_ms: int | None = None,
    prompt_cache_key: str | None = None,
) -> GenerateRequest:
    return GenerateRequest(
        prompt="Once",
        model=model,
        priority=priority,
        deadline_ms=deadline_ms,
        prompt_cache_key=prompt_cache_key,
    )


def model_info(name: str = "llama", fingerprint: str | None = None) -> ModelInfo:
    return ModelInfo(
        name=name,
        architecture="llama",
        parameters=1000,
        size_bytes=2000,
        context_size=2048,
        fingerprint=fingerprint,
    )


def hello(
    id: str = "a1",
    *,
    slots: int = 2,
    model: str | None = "llama",
    protocol: int = PROTOCOL_VERSION,
    work: Work | None = None,
    takes_over: bool = False,
    facts: HostFacts = HostFacts(),  # noqa: B008
    fingerprint: str | None = None,
) -> Hello:
    return Hello(
        protocol=protocol,
        agent_id=AgentId(id),
        name=f"host-{id}",
        version="1.0",
        slots=slots,
        model=None if model is None else model_info(model, fingerprint),
        work=work,
        takes_over=takes_over,
        facts=facts,
    )


def forwarding(
    id: str,
    *,
    slots: int = 2,
    model: str = "llama",
    fingerprint: str | None = "text:s",
    abilities: Iterable[str] = ("messages", "prompt", "continue_final_message"),
) -> Hello:
    """The hello of an agent that forwards to a server which can do this."""
    served = model_info(model, fingerprint)
    upstream = Upstream(kind="vllm", address="h:1", abilities=tuple(abilities))
    return replace(hello(id, slots=slots), model=replace(served, upstream=upstream))


def status(
    slots: int = 2,
    *,
    accepting: bool = True,
    model: str | None = "llama",
    work: Work | None = None,
    fingerprint: str | None = None,
    peer: Peer | None = None,
    issues: tuple[Issue, ...] = (),
) -> Status:
    return Status(
        slots=slots,
        accepting=accepting,
        model=None if model is None else model_info(model, fingerprint),
        issues=issues,
        work=work,
        peer=peer,
    )


MODEL = Assignment(name="llama", source="file:///llama.gguf")


def work(phase: Phase, assignment: Assignment | None = MODEL, *, revision: int = 1) -> Work:
    return Work(revision=revision, assignment=assignment, phase=phase)


def piece(id: str, text: str = "word", kind: TokenKind = "content", num_tokens: int = 1) -> Piece:
    return Piece(id=RequestId(id), text=text, kind=kind, tokens=tuple(range(num_tokens)))


def ended(id: str, finish_reason: FinishReason = "stop") -> Ended:
    return Ended(id=RequestId(id), finish_reason=finish_reason, usage=USAGE, rates=Rates())


def refused(id: str, error: RequestError) -> Refused:
    return Refused(id=RequestId(id), error=to_wire(error))


def busy(id: str) -> Busy:
    return Busy(id=RequestId(id))


def output(*items: Item) -> Output:
    return Output(items=items)


def sent(decisions: Iterable[Decision]) -> list[FromBalancer]:
    """What goes to agents, in order."""
    return [decision.message for decision in decisions if isinstance(decision, Send)]


def delivered(decisions: Iterable[Decision]) -> list[tuple[RequestId, Event]]:
    """What goes to clients, in order."""
    found: list[tuple[RequestId, Event]] = []
    for decision in decisions:
        if isinstance(decision, DeliverTokens):
            found += decision.tokens
        elif isinstance(decision, Deliver):
            found.append((decision.request, decision.event))
    return found


def codes(decisions: Iterable[Decision]) -> dict[str, str]:
    """How requests ended, by id."""
    return {d.ending.request_id: d.ending.code for d in decisions if isinstance(d, Finish)}
