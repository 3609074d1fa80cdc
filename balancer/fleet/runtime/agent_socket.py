"""Serves the WebSockets of agents at `GET /api/v1/agent-socket`.

If an agent breaks the protocol, the balancer closes its connection with a reason. The agent then
counts as lost and must stay away for a while. Other agents are not affected.

pydantic decodes a message in one go and blocks the event loop meanwhile, even from a thread: 30 MB
of empty items take seconds. So the cost of a large message is counted first, in several turns of
the event loop, and costly messages are rejected. Agents send small messages except for two
replies: embeddings, which are cheap to decode, and the tokens of a text, which are decoded in
parts.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from pydantic import TypeAdapter, ValidationError

from ....shared.errors import InvalidRequest, Unauthorized
from ....shared.framing.frames import MAX_FRAME_BYTES, PIECE_BYTES, Assembler, BadPiece
from ....shared.framing.handshake import is_handshake, received
from ....shared.inference import MAX_TOKEN_IDS, TokenId
from ....shared.json_size import JsonCounter, JsonLimits
from ....shared.log import context
from ....shared.messages import (
    BALANCER_HEADER,
    WORKERS_HEADER,
    FromAgent,
    Hello,
    Reply,
    decode_from_agent,
)
from ....shared.queries import Tokenized
from ....shared.strict import LAZY, ListOf
from ....shared.validation import invalid
from ...access.identity import Identity
from ..bad_messages import CODE
from ..decisions import LinkId
from .fleet_runtime import FleetRuntime
from .outbox import Outbox

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""The maximum bytes of a message, except replies. Calls with long arguments are the longest."""

LIMITS = JsonLimits(values=2**16, strings=2**15, containers=2**13)
"""Twice the size of the largest list of log-probabilities or scores."""

MAX_ESCAPES = 2**20
"""The maximum backslashes in a message. A backslash costs as much as ten other characters."""

COUNTED_AT_ONCE = 256 * 1024
TOKENS_AT_ONCE = 64 * 1024
"""The bytes of a list of tokens that are decoded in one turn of the event loop."""

_REPLY = b'{"type":"reply",'
_TOKENIZED = b'"result":{"type":"tokenized","tokens":['
_END = b"]}}"
_HEAD_BYTES = 512

_token_ids: TypeAdapter[tuple[int, ...]] = TypeAdapter(ListOf[TokenId], config=LAZY)


class CostlyMessage(ValueError):
    """A message would take too long to decode. The agent's connection is closed."""


async def decoded(text: bytes) -> FromAgent:
    """Return the message in `text`. Raises `CostlyMessage` and `pydantic.ValidationError`."""
    if len(text) <= PIECE_BYTES:
        return decode_from_agent(text)
    is_reply = text.startswith(_REPLY)
    if is_reply and (start := text.find(_TOKENIZED, 0, _HEAD_BYTES)) > 0 and text.endswith(_END):
        return await _tokenized(text, start + len(_TOKENIZED))
    if not is_reply and len(text) > MAX_MESSAGE_BYTES:
        raise CostlyMessage(f"it has more than {MAX_MESSAGE_BYTES} bytes")
    await _check(text)
    return decode_from_agent(text)


async def _check(text: bytes) -> None:
    """Check the cost of decoding the message `text`. Raises `CostlyMessage`."""
    counter = JsonCounter(LIMITS)
    num_escapes = 0
    for start in range(0, len(text), COUNTED_AT_ONCE):
        part = text[start : start + COUNTED_AT_ONCE]
        num_escapes += part.count(b"\\")
        if num_escapes > MAX_ESCAPES:
            raise CostlyMessage(f"it has more than {MAX_ESCAPES} backslashes, which is the limit")
        try:
            counter.add(part)
        except InvalidRequest as error:
            raise CostlyMessage(error.message) from error
        await asyncio.sleep(0)


async def _tokenized(text: bytes, start: int) -> FromAgent:
    """Return the reply in `text`. Its list of tokens begins at `start` and is decoded in parts."""
    message = decode_from_agent(text[:start] + _END)
    end = len(text) - len(_END)
    tokens: list[int] = []
    while start < end:
        comma = text.find(b",", start + TOKENS_AT_ONCE, end)
        stop = end if comma < 0 else comma
        tokens += _token_ids.validate_json(b"[%b]" % text[start:stop])
        if len(tokens) > MAX_TOKEN_IDS:
            raise CostlyMessage(f"it has more than {MAX_TOKEN_IDS} tokens")
        start = stop + 1
        await asyncio.sleep(0)
    if not isinstance(message, Reply) or not isinstance(message.result, Tokenized):
        raise CostlyMessage("only a reply may have that many tokens")
    return replace(message, result=replace(message.result, tokens=tuple(tokens)))


logger = logging.getLogger(__name__)

PATH = "/api/v1/agent-socket"

_CLOSED = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)
_CLOSE_TIMEOUT = 2.0
"""The seconds for which the balancer waits for an agent's answer to a close frame."""


class _Junk(Exception):
    """A frame that breaks the protocol."""


class AgentAccess(Protocol):
    """Finds the key holder of an agent that connects; `api/guard.py` implements this."""

    def holder(self, request: web.Request) -> Identity | None:
        """Return the holder of the key in `request`, or `None` if agents need no key."""

    def lease(
        self, holder: Identity | None, on_end: Callable[[Unauthorized], None]
    ) -> AbstractContextManager[None]:
        """Return a context in which `on_end` is called when the permission of `holder` ends."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The processes behind one port: this process's run, their number, and all present runs."""

    run: str
    num: int
    living: Callable[[], Iterable[str]]


class Watch(Protocol):
    """Limits the frames of a WebSocket, like `api.transport.connections.watch_frames`."""

    def __call__(
        self, request: web.Request, *, on_fault: Callable[[str, WSCloseCode], None]
    ) -> bool: ...


Report = Callable[[web.Request, Unauthorized], None]
"""Tells operators that a request was refused, and why."""


class AgentSocket:
    """The WebSockets of agents at `PATH` on the management port."""

    def __init__(
        self,
        runtime: FleetRuntime,
        *,
        admission: AgentAccess,
        report: Report,
        needs_certificate: bool = False,
        workers: Workers | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Make the route.

        If `needs_certificate`, agents must show a TLS certificate; the TLS handshake has checked
        it. `workers` is given if this balancer is one of several processes behind its port.
        `watch` limits the frames of agents, and `report` is called for each refused agent.
        """
        self._runtime = runtime
        self._needs_certificate = needs_certificate
        self._admission = admission
        self._workers = workers
        self._watch = watch
        self._report = report
        self._name = uuid.uuid4().hex if workers is None else workers.run
        self._patience = runtime.views.limits.heartbeat_timeout

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one agent's connection, from its first frame to its close."""
        if self._needs_certificate and not request.get_extra_info("peercert"):
            raise self._refused(
                request,
                "certificate",
                (
                    "the agent showed no certificate, but this balancer requires one "
                    "(--agent-ca); start the agent with --tls-cert and --tls-key"
                ),
            )
        socket = web.WebSocketResponse(
            max_msg_size=MAX_FRAME_BYTES, compress=False, decode_text=False, timeout=_CLOSE_TIMEOUT
        )
        if not is_handshake(socket, request):
            raise InvalidRequest("this path is for the WebSockets of agents")
        socket.headers[BALANCER_HEADER] = self._name
        if self._workers is not None:
            names = ",".join(self._workers.living())
            socket.headers[WORKERS_HEADER] = f"{self._workers.num};{names}"
        transport = request.transport
        if transport is None:
            return socket
        outbox = Outbox(socket, transport, patience=self._patience)
        if self._watch is not None:
            self._watch(request, on_fault=outbox.disconnect)
        await socket.prepare(request)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(outbox.run())
            try:
                holder = self._admission.holder(request)
                await self._converse(socket, outbox, request, holder)
            except _Junk as error:
                logger.warning(
                    "an agent's connection is closed: its message is invalid: %s",
                    error,
                    extra=context(peer=request.remote),
                )
                outbox.disconnect(str(error), WSCloseCode.POLICY_VIOLATION)
            finally:
                outbox.disconnect("closed by the agent")
        return socket

    def _refused(self, request: web.Request, kind: str, reason: str) -> Unauthorized:
        """Report a refused agent, and return the error for the agent."""
        error = Unauthorized(reason, kind=kind)
        self._report(request, error)
        return error

    async def _converse(
        self,
        socket: web.WebSocketResponse,
        outbox: Outbox,
        request: web.Request,
        holder: Identity | None,
    ) -> None:
        link: LinkId | None = None

        def dismiss(error: Unauthorized) -> None:
            """Close the connection at once, and ignore what the agent still sends."""
            if link is not None:
                self._runtime.agent_left(link)
            outbox.disconnect(error.message, WSCloseCode.POLICY_VIOLATION)

        with self._admission.lease(holder, dismiss):
            hello = await self._hello(socket)
            if hello is None or outbox.reason is not None:
                return
            link = self._runtime.agent_joined(outbox, hello, holder)
            id = self._runtime.agent_id(link)
            if id is None and not self._runtime.views.totals().is_draining:
                self._refused(request, "rejected", f"{hello.name!r}: {outbox.reason}")
            about = context(
                agent=hello.name,
                id=id or hello.agent_id,
                peer=request.remote,
                slots=hello.slots,
                key=None if holder is None else holder.name,
            )
            await self._serve(socket, outbox, link, hello.name, about)

    async def _serve(
        self,
        socket: web.WebSocketResponse,
        outbox: Outbox,
        link: LinkId,
        name: str,
        about: Mapping[str, object],
    ) -> None:
        logger.info("agent connected", extra=about)
        if (num := self._runtime.views.num_called(name)) > 1:
            logger.warning(
                "%d agents are called %r: give each a --name of its own", num, name, extra=about
            )
        hung_up = False
        try:
            hung_up = await self._listen(socket, outbox, link)
        except _Junk as error:
            outbox.disconnect(f"{CODE}: {error}", WSCloseCode.POLICY_VIOLATION)
            self._runtime.agent_broke(link, str(error))
        finally:
            self._runtime.agent_left(link, hung_up=hung_up)
            reason = outbox.reason or "closed by the agent"
            logger.info("agent disconnected: %s", reason, extra=about)

    async def _listen(self, socket: web.WebSocketResponse, outbox: Outbox, link: LinkId) -> bool:
        """Handle messages until the socket is closed.

        Returns whether the agent closed the socket in good order.
        """
        while (frame := await received(socket)).type not in _CLOSED:
            if (text := _whole(frame, outbox.assembler)) is None:
                self._runtime.agent_heard(link)
            else:
                self._runtime.agent_said(link, await _decoded(text))
        return frame.type is WSMsgType.CLOSE and frame.data == WSCloseCode.OK

    async def _hello(self, socket: web.WebSocketResponse) -> Hello | None:
        try:
            async with asyncio.timeout(self._patience):
                frame = await received(socket)
        except TimeoutError as error:
            raise _Junk(f"the agent sent no hello within {self._patience:g} s") from error
        if frame.type in _CLOSED:
            return None
        message = await _decoded(_text(frame))
        if not isinstance(message, Hello):
            raise _Junk(f"the first frame must be `hello`, not `{message.type}`")
        return message


def _whole(frame: WSMessage, assembler: Assembler) -> bytes | None:
    """Return the message that `frame` contains or completes, or `None` if a part is missing."""
    if frame.type is not WSMsgType.BINARY:
        return _text(frame)
    try:
        return assembler.take(frame.data)
    except BadPiece as error:
        raise _Junk(str(error)) from error


def _text(frame: WSMessage) -> bytes:
    if frame.type is WSMsgType.ERROR:
        raise _Junk(str(frame.data))
    if frame.type is not WSMsgType.TEXT:
        raise _Junk("the first frame must be text")
    data: bytes = frame.data
    return data


async def _decoded(text: bytes) -> FromAgent:
    try:
        return await decoded(text)
    except CostlyMessage as error:
        raise _Junk(f"the message is too costly to decode: {error}") from error
    except ValidationError as error:
        raise _Junk(
            f"the message is not a valid message of an agent: {invalid(error, text)}"
        ) from error
