"""Counts a prompt's tokens on an agent, which has the chat template and the vocabulary."""

from ....shared.errors import RequestError
from ....shared.inference import GenerateRequest
from ....shared.queries import Counted, CountTokens
from ...fleet.caller import Caller
from ...fleet.queries.query import QueryRequest
from ...fleet.runtime.fleet_runtime import FleetRuntime
from .body_fields import SAME_NAMES, FieldNames
from .parts import only


async def count_tokens(
    runtime: FleetRuntime,
    request: GenerateRequest,
    names: FieldNames = SAME_NAMES,
    *,
    caller: Caller,
) -> int:
    """Return the number of the prompt's tokens, including the template's.

    Raises `RequestError` with fields by `names`.
    """
    query_request = QueryRequest(
        kind="text", parts=(CountTokens(request=request),), model=request.model
    )
    try:
        with runtime.ask(query_request, caller=caller) as handle:
            return only(await handle.results(), Counted).num_tokens
    except RequestError as error:
        raise names.renamed(error) from error
