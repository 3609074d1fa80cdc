"""Answers queries by asking the server, with one request each in a task of its own.

The sessions limit the number of queries at once.
"""

import asyncio
import logging
from collections.abc import Callable

from ...shared.errors import InternalError, RequestError, ShuttingDown, to_wire
from ...shared.queries import Declined, Query, Result
from ..generation.port import QueryId
from .client import Client
from .protocol.bodies import Server
from .protocol.failures import UpstreamFault, UpstreamLost, UpstreamRefusal, error_of, loss_of
from .protocol.queries import call_of, result_of

logger = logging.getLogger(__name__)

WITHIN = 120.0
"""Maximum seconds for one answer; balancers give up earlier."""


class UpstreamQueries:
    """`port.Queries` over a server.

    `server` returns its properties; `None` while it is unreachable.
    """

    def __init__(
        self, client: Client, group: asyncio.TaskGroup, server: Callable[[], Server | None]
    ) -> None:
        self._client = client
        self._group = group
        self._server = server
        self._tasks: dict[QueryId, asyncio.Task[None]] = {}

    def answer(self, id: QueryId, query: Query, reply: Callable[[Result], None]) -> None:
        """Answer `query`; `reply` gets the result, unless the query is withdrawn before."""
        self._tasks[id] = self._group.create_task(self._run(id, query, reply))

    def withdraw(self, id: QueryId) -> None:
        """Withdraw the query: its result is no longer needed."""
        if (task := self._tasks.pop(id, None)) is not None:
            task.cancel()

    async def _run(self, id: QueryId, query: Query, reply: Callable[[Result], None]) -> None:
        try:
            result = await self._result(query)
        except Exception as error:  # the boundary of a query: it is logged and answered
            result = Declined(error=to_wire(self._error_of(error)))
        if self._tasks.pop(id, None) is not None:
            reply(result)

    async def _result(self, query: Query) -> Result:
        server = self._server()
        if server is None:
            raise ShuttingDown(
                f"the upstream server at {self._client.address.shown} is not reachable"
            )
        call = call_of(query, server)
        address = self._client.address
        base = address.api if call.base == "api" else address.root
        return result_of(query, await self._client.post(base + call.path, call.body, within=WITHIN))

    def _error_of(self, error: Exception) -> RequestError:
        host = self._client.address.shown
        match error:
            case RequestError():
                return error
            case UpstreamRefusal():
                return error_of(error, host)
            case UpstreamLost() | UpstreamFault():
                return loss_of(str(error), host, has_streamed=False)
            case _:
                logger.error("a query could not be answered", exc_info=error)
                return InternalError("the agent failed to answer; its log has the details")
