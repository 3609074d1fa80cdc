"""The routes of agents and of running, waiting and ended requests, and of cancellation.

The routes also ask other balancers over the same store.
"""

import time
from collections.abc import Callable, Sequence

from aiohttp import web

from ...shared.errors import InvalidRequest, NotFound
from ...shared.inference import AgentId, RequestId
from ..api.common.answering import uncached_json
from ..api.guard import Needs
from ..api.openapi.document import Doc, json_answer, parameter
from ..api.route import Route
from ..cluster.cluster_view import ClusterView
from ..cluster.others import Others
from ..fleet.runtime.fleet_runtime import FleetRuntime
from ..fleet.view import AgentView, RequestView
from ..history.history_task import HistoryTask
from .answer_types import Agent, Agents, Cancelled, ListedRequest, PastDevices, Requests
from .history.history_routes import EndedRequests, ended_requests
from .request_filter import DEFAULT_LIMIT, MAX_LIMIT, STATES, RequestFilter
from .serializers import agent_json, listed_json, past_devices_json
from .throughput import AgentRates


def fleet_routes(
    runtime: FleetRuntime,
    history: HistoryTask,
    cluster: ClusterView,
    clock: Callable[[], float] = time.monotonic,
) -> list[Route]:
    """Return the routes under `/api/v1/agents` and `/api/v1/requests`."""
    agents = _AgentHandlers(runtime, history, cluster, clock)
    requests = _RequestHandlers(runtime, history, cluster)
    return [
        Route("GET", "/api/v1/agents", Needs.VIEW, agents.list, _AGENTS),
        Route("GET", "/api/v1/agents/{id}", Needs.VIEW, agents.show, _AGENT),
        Route("GET", "/api/v1/agents/{id}/devices", Needs.VIEW, agents.devices, _DEVICES),
        Route("GET", "/api/v1/requests", Needs.VIEW, requests.list, _REQUESTS),
        Route("GET", "/api/v1/requests/{id}", Needs.VIEW, requests.show, _REQUEST),
        Route("DELETE", "/api/v1/requests/{id}", Needs.OPERATE, requests.cancel, _CANCEL),
    ]


_AGENTS = Doc(
    "Agents", "The connected agents.", {200: json_answer("All connected agents.", Agents)}
)
_AGENT = Doc("OneAgent", "One agent.", {200: json_answer("The agent.", Agent)}, errors=(NotFound,))
_DEVICES = Doc(
    "AgentDevices",
    "Memory, use and temperature of the devices of an agent's host in the last minutes.",
    {200: json_answer("Columns over times, for each device.", PastDevices)},
    errors=(NotFound,),
)
_REQUESTS = Doc(
    "Requests",
    "Queued and running requests, or requests that have ended, without their texts.",
    {
        200: json_answer(
            "The oldest matching requests; of requests that have ended, the latest.",
            Requests | EndedRequests,
        )
    },
    parameters=(
        parameter("state", "query", {"type": "string", "enum": [*sorted(STATES), "ended"]}),
        parameter("model", "query"),
        *(parameter(name, "query") for name in ("agent", "caller", "code", "before")),
        parameter(
            "limit",
            "query",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        ),
    ),
    errors=(InvalidRequest,),
)
_REQUEST = Doc(
    "OneRequest",
    "A queued or running request, and for a queued one its place and expected wait.",
    {200: json_answer("The request.", ListedRequest)},
    errors=(NotFound,),
)
_CANCEL = Doc(
    "CancelRequest",
    "Cancels a request; its client keeps the part of the answer that was sent.",
    {202: json_answer("The request ends shortly.", Cancelled)},
    errors=(NotFound,),
)


class _AgentHandlers:
    def __init__(
        self,
        runtime: FleetRuntime,
        history: HistoryTask,
        cluster: ClusterView,
        clock: Callable[[], float],
    ) -> None:
        self._runtime = runtime
        self._history = history
        self._cluster = cluster
        self._clock = clock
        self._rates = AgentRates()

    async def list(self, _request: web.Request) -> web.Response:
        others = await self._cluster.fleet()
        views = self._runtime.views.view(max_requests=0).agents
        answer = Agents(agents=[self._shown(each, others) for each in views])
        if others.missing:
            answer["missing"] = [*others.missing]
        return uncached_json(answer)

    async def show(self, request: web.Request) -> web.Response:
        found = self._found(request)
        return uncached_json(self._shown(found, await self._cluster.fleet()))

    async def devices(self, request: web.Request) -> web.Response:
        past = self._runtime.views.device_past(self._found(request).id)
        return uncached_json(past_devices_json(past, self._history.clock()))

    def _found(self, request: web.Request) -> AgentView:
        agent_id = AgentId(request.match_info["id"])
        if (found := self._runtime.views.agent(agent_id)) is None:
            raise NotFound(f"no agent `{agent_id[:100]}` is connected")
        return found

    def _shown(self, agent: AgentView, others: Others) -> Agent:
        rate = self._rates.rate(agent, self._clock()) + others.rates.get(agent.id, 0.0)
        return agent_json(agent, rate, others.busy.get(agent.id, 0))


class _RequestHandlers:
    def __init__(self, runtime: FleetRuntime, history: HistoryTask, cluster: ClusterView) -> None:
        self._runtime = runtime
        self._history = history
        self._cluster = cluster

    async def list(self, request: web.Request) -> web.Response:
        if request.query.get("state") == "ended":
            return await ended_requests(self._history, request.query, self._cluster)
        chosen = RequestFilter.of(request.query)
        found = await self._cluster.requests(
            chosen,
            lambda: map(self._listed, chosen.choose(self._runtime.views.requests())),
            lambda: self._runtime.views.totals().num_requests,
        )
        answer = Requests(requests=found.requests, total=found.total)
        if found.missing:
            answer["missing"] = [*found.missing]
        return uncached_json(answer)

    async def show(self, request: web.Request) -> web.Response:
        request_id = RequestId(request.match_info["id"])
        if (here := self._runtime.views.request(request_id)) is not None:
            return uncached_json(self._listed(here))
        others = await self._cluster.request(request_id)
        if not others.requests:
            raise _no_request(request_id, others.missing)
        return uncached_json(others.requests[0])

    async def cancel(self, request: web.Request) -> web.Response:
        request_id = RequestId(request.match_info["id"])
        is_here = self._runtime.cancel([request_id])
        if not is_here and not await self._cluster.cancel(request_id):
            raise _no_request(request_id)
        return uncached_json(Cancelled(id=request_id), status=202)

    def _listed(self, request: RequestView) -> ListedRequest:
        waiting = self._runtime.views.waiting(request.id) if request.state == "queued" else None
        return listed_json(request, waiting, time.time(), self._cluster.here)


def _no_request(id: RequestId, missing: Sequence[str] = ()) -> NotFound:
    silent = f"; no answer came from {', '.join(missing)}" if missing else ""
    return NotFound(f"no request `{id[:100]}` is waiting or running{silent}")
