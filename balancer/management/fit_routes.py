"""`GET /api/v1/models/fit`: the options that each host would choose for a model.

The model need not be downloaded.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aiohttp import web
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ...shared.errors import InvalidRequest, RateLimited
from ...shared.inference import AgentId
from ...shared.messages import Issue
from ...shared.models.assignments import MAX_SLOTS, NumSlots
from ...shared.models.engine_options import AutoContext
from ...shared.models.sources import MAX_SOURCE, Source, check_http
from ...shared.reports.model_info import ModelFit
from ...shared.strict import STRICT
from ...shared.validation import echo, parse_json
from ..api.common.answering import uncached_json
from ..api.guard import Needs
from ..api.openapi.document import Doc, json_answer, parameter
from ..api.route import Route
from ..fleet.runtime.fleet_runtime import FleetRuntime, HostFit
from .parameters import is_number
from .serializers import dumps


class AgentFit(TypedDict):
    """The options that an agent would choose, or the `issue` if the options are unknown."""

    agent: AgentId
    name: str
    fit: ModelFit | None
    issue: Issue | None


class Fits(TypedDict):
    """The choices of all agents."""

    source: str
    agents: list[AgentFit]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitQuery:
    """The query. Without `slots` and `context_size` each agent uses its own settings."""

    __pydantic_config__ = STRICT
    source: Source
    slots: NumSlots | None = None
    context_size: AutoContext | None = None


_QUERY: TypeAdapter[FitQuery] = TypeAdapter(FitQuery)


def routes(runtime: FleetRuntime) -> list[Route]:
    """Return the route of the choices."""
    http_hosts = runtime.views.limits.http_hosts

    async def fit(request: web.Request) -> web.Response:
        query = fit_query(request.query, http_hosts)
        found = await runtime.read_fits(
            query.source, slots=query.slots, context_size=query.context_size
        )
        body: Fits = {"source": query.source, "agents": [_agent(each) for each in found]}
        return uncached_json(body)

    doc = Doc(
        "ModelFit",
        (
            "The options that each agent would choose for a model, given the memory that is "
            "free now. Agents download only the headers of the model's files."
        ),
        {200: json_answer("The choice of each agent.", Fits)},
        parameters=(
            parameter(
                "source", "query", {"type": "string", "maxLength": MAX_SOURCE}, required=True
            ),
            parameter("slots", "query", {"type": "integer", "minimum": 1, "maximum": MAX_SLOTS}),
            parameter("context_size", "query"),
        ),
        errors=(InvalidRequest, RateLimited),
    )
    # Agents look at their files for it, and ask servers: as whoever desires models may have them.
    return [Route("GET", "/api/v1/models/fit", Needs.ADMINISTER, fit, doc, acts=True)]


def fit_query(query: Mapping[str, str], http_hosts: Collection[str]) -> FitQuery:
    """Return the query in a URL's parameters.

    Raises `InvalidRequest`, which names the parameter.
    """
    values = {
        name: int(text) if name != "source" and is_number(text) else text
        for name, text in query.items()
    }
    found = parse_json(_QUERY, dumps(values))
    try:
        check_http(found.source, http_hosts)
    except ValueError as error:
        message = f"`source` {error}, not {echo(found.source)}"
        raise InvalidRequest(message, field="source") from error
    return found


def _agent(found: HostFit) -> AgentFit:
    return {"agent": found.host, "name": found.name, "fit": found.fit, "issue": found.issue}
