"""A scripted server on loopback, with the quirks of one dialect, and a listener for what comes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from arriero.agent.sequence_id import SequenceId
from arriero.agent.upstream import client, watch
from arriero.shared.messages import Item
from tests.agent.fakes import soon
from tests.waiting import HANGS

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MODEL = {"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 64}


def chunk(delta: Json | None = None, finish: str | None = None, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


TEXT = (chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"))
COUNTS: Json = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}

COUNTED = "one, two, three, four, five, six, seven"


class Scripted:
    """Answers by its script. It plays vLLM, as far as probes can tell, unless told otherwise."""

    def __init__(self) -> None:
        self.models: list[Json] = [MODEL]
        self.status = 200
        """Of every answer."""
        self.status_of_posts = 200
        """Of every answer but the list of models."""
        self.next_statuses: list[int] = []
        """Of the next answers but lists of models, first of all."""
        self.retry_after: str | None = None
        """Of refusals that are not of a field."""
        self.refuses: dict[str, str] = {}
        """Fields of bodies and types of parts that it takes from nobody, and what it says then."""
        self.chunks: tuple[Json, ...] = (*TEXT, COUNTS)
        self.is_stuck = False
        """Whether an answer stops after its first chunk."""
        self.breaks_off = False
        self.goes_on = True
        """Whether a last message of the assistant's is gone on with."""
        self.is_silent = False
        self.was_asked = asyncio.Event()
        self.documents: dict[str, Json] = {}
        self.seen: list[tuple[str, Json]] = []
        self.keys: list[str | None] = []
        self.has_begun = asyncio.Event()
        self.was_left = asyncio.Event()
        self.url = ""

    @property
    def asked(self) -> list[Json]:
        """The bodies of streamed requests."""
        return [body for _, body in self.seen if body.get("seed") == 77]

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["Scripted"]:
        """It is not given up for being slow, as long as it is not told to be silent."""
        app = web.Application()
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/{path:.*}", self._post)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        host, taken = runner.addresses[0][:2]
        self.url = f"http://{host}:{taken}"
        try:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(client, "CONNECT", HANGS)
                patched.setattr(watch, "CHECK_WITHIN", HANGS)
                yield self
        finally:
            await runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("Authorization"))
        self.was_asked.set()
        if self.is_silent:
            await asyncio.Event().wait()
        if self.status != 200:
            return self._refusal("not now", self.status)
        return web.json_response({"object": "list", "data": self.models})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append((request.path, body))
        self.keys.append(request.headers.get("Authorization"))
        status = self.next_statuses.pop(0) if self.next_statuses else 200
        statuses = (status, self.status, self.status_of_posts)
        if status := next((each for each in statuses if each != 200), 0):
            return self._refusal(f"not now, {request.headers.get('Authorization')}", status)
        if words := next(
            (self.refuses[each] for each in _fields(body) if each in self.refuses), None
        ):
            return web.json_response({"error": {"message": words}}, status=400)
        if body.get("stream"):
            return await self._stream(request)
        return web.json_response(self.documents.get(request.path) or _whole(request.path, body))

    def _chunks(self, body: Json) -> tuple[Json, ...]:
        messages = body.get("messages", ())
        if not messages or "Count" not in str(messages[0]["content"]):
            return self.chunks
        given = messages[-1]["content"] if messages[-1]["role"] == "assistant" else ""
        text = COUNTED[len(given) :] if self.goes_on else COUNTED
        return (chunk({"content": text}), chunk({}, "stop"))

    def _refusal(self, words: str, status: int) -> web.Response:
        headers = {"Location": "http://elsewhere/"} if status == 307 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = self.retry_after
        body = {"error": {"message": words}}
        return web.json_response(body, status=status, headers=headers)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for place, each in enumerate(self._chunks(await request.json())):
                await response.write(f"data: {json.dumps(each)}\n\n".encode())
                self.has_begun.set()
                if place == 0 and self.breaks_off:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                if place == 0 and self.is_stuck:
                    await asyncio.Event().wait()
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            self.was_left.set()
            raise
        return response


def _fields(body: Json) -> list[str]:
    contents = [each["content"] for each in body.get("messages", ())]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [*body, *(part["type"] for part in parts)]


def _whole(path: str, body: Json) -> Json:
    """What shows that it can do what a probe looks for."""
    if path.endswith("/embeddings"):
        return {"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 1}}
    if path.endswith("/completions") and "prompt" in body:
        num = len(body["prompt"]) if isinstance(body["prompt"], list) else 4
        counts = {"prompt_tokens": num, "completion_tokens": 4}
        return {"choices": [{"text": "four"}], "usage": counts}
    message: Json = {"role": "assistant", "content": "yes"}
    if body.get("tool_choice") == "required":
        message["tool_calls"] = [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]
    if "response_format" in body:
        message["content"] = '{"arriero": "probe"}'
    num = body["max_tokens"] if body.get("ignore_eos") else 1
    top = [{"token": "yes", "logprob": -0.1}]
    scored = {"content": [{"token": "yes", "logprob": -0.1, "top_logprobs": top}]}
    choice = {"message": message, "finish_reason": "stop"}
    if body.get("logprobs"):
        choice["logprobs"] = scored
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": num}}


class Listener:
    """Keeps what it hears; everything comes soon."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[tuple[tuple[Item, ...], tuple[SequenceId, ...]]] = (
            asyncio.Queue()
        )

    def produced(self, items: tuple[Item, ...], released: tuple[SequenceId, ...]) -> None:
        self._heard.put_nowait((items, released))

    async def next(self) -> tuple[tuple[Item, ...], tuple[SequenceId, ...]]:
        return await soon(self._heard.get())

    async def until_released(self) -> list[Item]:
        """All items up to the end of a request."""
        items: list[Item] = []
        while True:
            more, released = await self.next()
            items += more
            if released:
                return items

    @property
    def has_heard_all(self) -> bool:
        return self._heard.empty()
