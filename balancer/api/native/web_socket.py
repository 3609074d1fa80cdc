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

from functools import partial

from ...fleet.runtime.fleet_runtime import FleetRuntime
from ..access.leases import Leases
from ..access.permissions import Needs
from ..openapi.document import AnswerDoc, Doc, ErrorAnswer, json_answer
from ..route import Route
from ..transport.bodies import MAX_BODY_BYTES
from ..transport.sockets import Sockets
from .socket_session import NativeSession

MAX_FRAME_BYTES = 2 * MAX_BODY_BYTES


class NativeSocket(Sockets[NativeSession]):
    """The WebSocket endpoint."""

    def __init__(self, runtime: FleetRuntime, leases: Leases) -> None:
        super().__init__(
            partial(NativeSession, runtime=runtime, leases=leases),
            max_message=MAX_FRAME_BYTES,
            refusal="this path is for WebSockets: send an upgrade request",
        )

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
        return Route("GET", "/api/v1/socket", Needs.FIRST_FRAME, self.serve, doc)
