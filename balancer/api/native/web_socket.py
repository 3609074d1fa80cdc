"""The native API over one WebSocket: JSON-RPC 2.0, many requests at once.

| method | params | result |
| --- | --- | --- |
| `generate` | as the body over HTTP | the `done` fields; with `"stream": false` also `text` |
| `generate_batch` | as the body over HTTP | `{"results": […]}`, in order, with the entries' ids |
| `embed`, `tokenize`, … | as the body over HTTP | as over HTTP, without `id` |
| `cancel` | `{"id": …}` (a call's) or `{"all": true}` | `{"cancelled": number of requests}` |
| `authenticate` | `{"key": "ark_…"}` | `{"authenticated": true, "name": …, "role": …}` |
| `ping` | none | `{"pong": true}`, also while streams run |

Beside a call's `id`, `item` names one request of its batch to `cancel`.

`authenticate` is for who cannot send a key in a header, as browsers: it then is the first call.

Streamed calls send `event` notifications before their result; `params.id` is the call's id, and in
a batch `params.item` the entry's. `cancel` and `ping` may come without an id and are then not
answered. Every call with an id is answered exactly once, and a bad frame harms no other.

A frame over 16 MiB is answered with `request_too_large`; one over `MAX_FRAME_BYTES` closes the
socket with code 1009. Where the bytes of messages and bodies that are being read are too many, of
all callers or of this one, the socket is closed with code 1013: try again later. One that sends a
flood of pings or of frames with next to nothing in them is closed with code 1008. Closing the
socket cancels the requests that it started.
"""

import asyncio
from functools import partial

from aiohttp import web

from ....shared.errors import InvalidRequest
from ....shared.framing.handshake import is_handshake
from ...fleet.runtime.fleet_runtime import FleetRuntime
from ..access.leases import Leases
from ..access.permissions import Needs
from ..openapi.document import AnswerDoc, Doc, ErrorAnswer, json_answer
from ..route import Route
from ..transport.bodies import BODIES, MAX_BODY_BYTES
from ..transport.callers import caller_of
from ..transport.connections import watch_frames
from ..transport.fault_reports import report_refusal
from ..transport.frame_writer import FrameWriter
from .socket_key import SocketKey
from .socket_session import FLUSH_SECONDS, SocketSession

MAX_FRAME_BYTES = 2 * MAX_BODY_BYTES

HEARTBEAT_SECONDS = 30.0
"""A peer that does not answer a ping for half this long is gone."""


class NativeSocket:
    """The WebSocket endpoint; it tracks its open sockets, to close them at shutdown."""

    def __init__(self, runtime: FleetRuntime, leases: Leases) -> None:
        self._runtime = runtime
        self._leases = leases
        self._sessions: set[SocketSession] = set()

    def route(self) -> Route:
        """The WebSocket's route."""
        doc = Doc(
            "Socket",
            "A WebSocket that speaks JSON-RPC 2.0 and carries many requests at once.",
            {
                101: AnswerDoc("The WebSocket is open."),
                400: json_answer("This is no upgrade request.", ErrorAnswer),
            },
        )
        return Route("GET", "/api/v1/socket", Needs.FIRST_FRAME, self._serve, doc)

    async def close(self) -> None:
        """Ends every open socket once it has sent what is waiting, or after `FLUSH_SECONDS`."""
        await asyncio.gather(*(session.retire() for session in self._sessions))

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS,
            timeout=FLUSH_SECONDS,
            max_msg_size=MAX_FRAME_BYTES,
            compress=False,
            decode_text=False,
        )
        if not is_handshake(socket, request):
            raise InvalidRequest("this path is for WebSockets: send an upgrade request")
        bodies = request.app[BODIES]
        tasks = asyncio.TaskGroup()
        with bodies.held(caller_of(request)) as held:
            session = SocketSession(
                self._runtime,
                socket,
                FrameWriter(request, socket, tasks),
                tasks,
                bodies,
                held,
                key=SocketKey(request, self._leases),
                refused=partial(report_refusal, request),
            )
            session.counts_parts = watch_frames(
                request, count=session.count, on_fault=session.faulted
            )
            await socket.prepare(request)
            self._sessions.add(session)
            try:
                await session.run()
            finally:
                self._sessions.discard(session)
        return socket
