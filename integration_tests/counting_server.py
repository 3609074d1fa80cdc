"""A server behind an agent: it counts, word by word, and has the troubles that a test gives it."""

import asyncio
import json

from aiohttp import web

from tests.agent.upstream.scripted import Json, Scripted, chunk

WORDS = tuple(f" w{number}" for number in range(20))


class CountingServer(Scripted):
    """Says `WORDS`, after those that it is given; beside that it is as `Scripted`, which is vLLM.

    It takes `limit` requests at once, and refuses others with 429.
    """

    def __init__(self) -> None:
        super().__init__()
        self.limit = 100
        self.num_refused = 0
        self.num_running = 0
        self.given: list[str] = []
        """What of an answer came with each request."""
        self.breaks_after: int | None = None
        """The next answer is cut off after so many words."""
        self.may_end = asyncio.Event()
        """Until then, answers stop before their last word."""
        self.may_end.set()

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        body: Json = await request.json()
        if self.num_running >= self.limit:
            self.num_refused += 1
            return self._refusal("too many requests", 429)
        self.num_running += 1
        try:
            return await self._count(request, body["messages"])
        finally:
            self.num_running -= 1

    async def _count(self, request: web.Request, messages: list[Json]) -> web.StreamResponse:
        last = messages[-1]
        self.given.append(last["content"] if last["role"] == "assistant" else "")
        words = WORDS[len(self.given[-1].split()) :]
        breaks_after, self.breaks_after = self.breaks_after, None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, word in enumerate(words):
            if number == breaks_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            if number == len(words) - 1:
                await self.may_end.wait()
            counts = {"prompt_tokens": 5, "completion_tokens": number + 1}
            await _write(response, json.dumps(chunk({"content": word}, usage=counts)))
        await _write(response, json.dumps(chunk({}, "stop")))
        await _write(response, "[DONE]")
        return response


async def _write(response: web.StreamResponse, data: str) -> None:
    await response.write(f"data: {data}\n\n".encode())
