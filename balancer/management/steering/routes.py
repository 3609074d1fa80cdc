"""`/api/v1/desired-state`, `/api/v1/models`, and the operators' actions on agents."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, NotRequired

from aiohttp import hdrs, web
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ....shared.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from ....shared.inference import AgentId
from ....shared.inference.adapters import adapted_name
from ....shared.messages import Issue
from ....shared.quantities import Duration
from ....shared.strict import STRICT
from ....shared.validation import parse_json
from ...api.common.answering import uncached_json
from ...api.guard import Needs
from ...api.openapi.document import Doc, json_answer, parameter
from ...api.openapi.schemas import Body
from ...api.route import Route
from ...api.transport.bodies import parsed
from ...api.transport.http import Handler, native_error
from ...control.agent_plan import Action
from ...control.desired_state import (
    DesiredState,
    InvalidDesiredState,
    changed_models,
    desired_state_fields,
    parse_desired_state,
)
from ...diary.diary import Diary
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ...fleet.view import AgentState, ModelStatus
from ...store.records import DiaryKind
from ..diary_routes import by_whom
from .desired_state_service import DesiredStateService
from .drains import DrainService

_ETAG = re.compile(r'"(\d{1,15})"', re.ASCII)


RetryAtLeader = Callable[[AgentId], Awaitable[None]]
"""Asks the leading balancer to let an agent retry."""


def routes(
    runtime: FleetRuntime,
    service: DesiredStateService,
    drains: DrainService,
    diary: Diary,
    retry_at_leader: RetryAtLeader | None = None,
) -> list[Route]:
    """Return the routes of the desired state, the models and the actions on agents."""
    return [
        *_state_routes(runtime, service, diary),
        _models_route(runtime),
        *_agent_routes(runtime, drains, diary, retry_at_leader),
    ]


# ---- the desired state


class DesiredModels(TypedDict):
    """The desired state, in the form of `DesiredState`.

    Durations are in seconds, sizes in bytes.
    """

    models: list[dict[str, Any]]


class AgentStep(TypedDict):
    """A step that an agent would take, and its reason.

    `model` is the model that the agent would then serve.
    """

    agent: AgentId
    name: str
    action: Action
    model: str | None
    why: str


class LackingModel(TypedDict):
    """A model that would have too few agents, and the reason."""

    name: str
    issues: list[Issue]


class DryRun(TypedDict):
    """The changes that a new desired state would cause. Nothing is changed.

    `desired` is the whole state that would be stored.
    """

    agents: list[AgentStep]
    lacking: list[LackingModel]
    desired: DesiredModels


def _state_routes(runtime: FleetRuntime, service: DesiredStateService, diary: Diary) -> list[Route]:
    async def get(_request: web.Request) -> web.Response:
        return _state(service)

    read = partial(parse_desired_state, http_hosts=runtime.views.limits.http_hosts)

    async def put(request: web.Request) -> web.Response:
        try:
            state = await parsed(request, read)
        except InvalidDesiredState as error:
            return _problems(error)
        expected = _expected(request)
        if _is_dry_run(request):
            return _dry_run(runtime, service, state, expected)
        before = service.state
        await service.put(state, expected=expected)
        if (changes := changed_models(before, state)) is not None:
            diary.note("models_changed", "desired models", changes, by=by_whom(request))
        return _state(service)

    get_doc = Doc(
        "DesiredState",
        "The models that the fleet should serve.",
        {200: json_answer("The desired state; `ETag` is its revision.", DesiredModels)},
    )
    put_doc = Doc(
        "Wish",
        "Replaces the desired state; with `dry_run`, says what would change.",
        {200: json_answer("The desired state, or what would change.", DesiredModels | DryRun)},
        parameters=(
            parameter("If-Match", "header"),
            parameter("dry_run", "query", {"type": "boolean", "default": False}),
        ),
        body=Body(name="DesiredState", adapter=TypeAdapter(DesiredState), takes_nulls=False),
        errors=(Conflict, StoreUnavailable),
    )
    path = "/api/v1/desired-state"
    return [
        Route("GET", path, Needs.VIEW, get, get_doc),
        Route("PUT", path, Needs.ADMINISTER, put, put_doc),
    ]


def _state(service: DesiredStateService) -> web.Response:
    response = uncached_json(desired_state_fields(service.state))
    response.headers[hdrs.ETAG] = f'"{service.revision}"'
    return response


def _problems(error: InvalidDesiredState) -> web.Response:
    """Return the error with all problems, each with its field."""
    body: dict[str, Any] = dict(native_error(error))
    body["error"] |= {
        "problems": [{"field": each.field, "message": each.sentence} for each in error.problems]
    }
    return uncached_json(body, status=error.status)


def _expected(request: web.Request) -> int | None:
    """Return the revision in `If-Match`, if any."""
    header = request.headers.get(hdrs.IF_MATCH, "*").strip()
    if header == "*":
        return None
    if (found := _ETAG.fullmatch(header)) is None:
        raise InvalidRequest('If-Match must be the ETag of the desired state, such as "3"')
    return int(found[1])


def _is_dry_run(request: web.Request) -> bool:
    value = request.query.get("dry_run", "false")
    if value not in ("true", "false"):
        raise InvalidRequest("`dry_run` must be true or false", field="dry_run")
    return value == "true"


def _dry_run(
    runtime: FleetRuntime, service: DesiredStateService, state: DesiredState, expected: int | None
) -> web.Response:
    if expected is not None and expected != service.revision:
        raise Conflict(f"the desired state is revision {service.revision} by now; read it again")
    plan = runtime.views.dry_run(state)
    return uncached_json(
        {
            "agents": [asdict(each) for each in plan.agents],
            "lacking": [
                {"name": name, "issues": [issue]} for name, issue in plan.shortages.items()
            ],
            "desired": desired_state_fields(state),
        }
    )


# ---- models


class ModelSlots(TypedDict):
    """The slots of a model's agents, and the number of them that this balancer has taken."""

    total: int
    busy: int


class Model(TypedDict):
    """A desired or served model. `agents` have the model or will have it soon.

    `progress` is the completed share of the loading, from 0 to 1, if known. `waiting` is the
    number of requests that wait for the model at this balancer. For a model that must be loaded,
    the sentence `placement` names its agents, and says why other agents do not load the model.
    """

    name: str
    aliases: tuple[str, ...]
    status: ModelStatus
    progress: float | None
    agents: list[AgentId]
    slots: ModelSlots
    waiting: int
    issues: tuple[Issue, ...]
    source: NotRequired[str]
    placement: NotRequired[str]


class Models(TypedDict):
    """All models, by name."""

    models: list[Model]


def _models_route(runtime: FleetRuntime) -> Route:
    async def models(_request: web.Request) -> web.Response:
        return uncached_json({"models": models_json(runtime)})

    doc = Doc(
        "Models",
        "What is desired and what is served, with its status.",
        {200: json_answer("All models, by name.", Models)},
    )
    return Route("GET", "/api/v1/models", Needs.VIEW, models, doc)


def models_json(runtime: FleetRuntime) -> list[Model]:
    """Return every model that is desired or known."""
    statuses = runtime.views.statuses()
    waiting = runtime.views.waiting_by_model()
    serving: dict[str, list[AgentId]] = {}
    slots: dict[str, ModelSlots] = {}
    for agent in runtime.views.view(max_requests=0).agents:
        for served in agent.models:
            if (info := served.info) is None:
                continue
            for name in (info.name, *(adapted_name(info.name, each) for each in info.adapters)):
                serving.setdefault(name, []).append(agent.id)
                own = slots.setdefault(name, {"total": 0, "busy": 0})
                own["total"] += served.slots.total
                own["busy"] += served.slots.busy
    adapters = runtime.views.adapters()
    sources = {
        adapted_name(status.model.name, adapter.name): adapter.source
        for status in statuses.values()
        for adapter in status.model.adapters
    }
    found: list[Model] = []
    for view in runtime.views.models():
        name = view.info.name
        model: Model = {
            "name": name,
            "aliases": (),
            "status": view.status,
            "progress": view.progress,
            "agents": serving.get(name, []),
            "slots": slots.get(name, {"total": 0, "busy": 0}),
            "waiting": waiting[name][0] if name in waiting else 0,
            "issues": view.issues,
        }
        if (status := statuses.get(name)) is not None:
            model["aliases"] = status.model.aliases
            model["source"] = status.model.source
            if (placement := runtime.views.placement_of(name)) is not None:
                model["placement"] = placement
            model["agents"] = list(dict.fromkeys([*model["agents"], *status.hosts]))
        elif (status := adapters.get(name)) is not None:
            model["source"] = sources[name]
            model["agents"] = list(dict.fromkeys([*model["agents"], *status.hosts]))
        found.append(model)
    return found


# ---- agents

DEFAULT_DRAIN = 30.0
"""Seconds in which running requests may finish before an operator's reload of an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDrain:
    """Requests that still run after `deadline` move to other agents, or end with an error.

    `null` means no deadline.
    """

    __pydantic_config__ = STRICT
    deadline: Annotated[Duration, Field(ge=0)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReload:
    """Running requests may continue for `deadline` before the reload."""

    __pydantic_config__ = STRICT
    deadline: Annotated[Duration, Field(ge=0)] = DEFAULT_DRAIN


DRAIN: TypeAdapter[AgentDrain] = TypeAdapter(AgentDrain)
RELOAD: TypeAdapter[AgentReload] = TypeAdapter(AgentReload)


class Steered(TypedDict):
    """An agent after an operator's action."""

    id: AgentId
    state: AgentState


def _agent_routes(
    runtime: FleetRuntime,
    drains: DrainService,
    diary: Diary,
    retry_at_leader: RetryAtLeader | None,
) -> list[Route]:
    def note(request: web.Request, kind: DiaryKind, message: str) -> None:
        if (agent := runtime.views.agent(_agent(request))) is not None:
            diary.note(kind, agent.name, message, by=by_whom(request))

    async def drain(request: web.Request) -> web.Response:
        requested = await parsed(request, _reader(DRAIN))
        await drains.drain(_agent(request), requested.deadline)
        note(request, "host_drained", "it gets no new work")
        return _steered(runtime, request)

    async def resume(request: web.Request) -> web.Response:
        await drains.resume(_agent(request))
        note(request, "host_resumed", "it gets work again")
        return _steered(runtime, request)

    async def reload(request: web.Request) -> web.Response:
        requested = await parsed(request, _reader(RELOAD))
        runtime.reload(_agent(request), requested.deadline)
        if retry_at_leader is not None:
            await retry_at_leader(_agent(request))
        return _steered(runtime, request)

    return [
        _agent_route("drain", drain, "Gives an agent no new requests.", DRAIN),
        _agent_route("resume", resume, "Gives an agent requests again."),
        _agent_route("reload", reload, "Has an agent load its model anew.", RELOAD),
    ]


def _agent_route(
    verb: str, handler: Handler, summary: str, adapter: TypeAdapter[Any] | None = None
) -> Route:
    name = verb.capitalize()
    body = None
    if adapter is not None:
        body = Body(name=f"Agent{name}", adapter=adapter, takes_nulls=False)
    doc = Doc(
        f"{name}Agent",
        summary,
        {200: json_answer("The agent's state now.", Steered)},
        body=body,
        errors=(NotFound,),
    )
    return Route("POST", f"/api/v1/agents/{{id}}/{verb}", Needs.OPERATE, handler, doc)


def _reader(adapter: TypeAdapter[Any]) -> Callable[[bytes], Any]:
    """Return a function that reads a body. For an empty body the function returns the defaults."""
    return lambda body: parse_json(adapter, body or b"{}")


def _agent(request: web.Request) -> AgentId:
    return AgentId(request.match_info["id"])


def _steered(runtime: FleetRuntime, request: web.Request) -> web.Response:
    agent = runtime.views.agent(_agent(request))
    if agent is None:
        raise NotFound("the agent has gone meanwhile")
    return uncached_json({"id": agent.id, "state": agent.state})
