"""The client: single requests, streams and batches of requests."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from json import loads
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from typing_extensions import Unpack

from .answers import Answer, Done, Event, Failed, answer_of, event_of, put_together
from .batch_jobs import BatchJobs
from .batches import BatchResult, run_batch
from .errors import RequestFailed, Unreachable
from .http import Http, reaching, tls_of
from .management import Management
from .requests import GenerateOptions
from .retries import Retries
from .socket import Socket

INFERENCE_URL = "http://127.0.0.1:8061"
MANAGEMENT_URL = "http://127.0.0.1:8060"

TELL_WAITING = {"Prefer": "wait=1"}
"""Headers that make a waiting stream begin after a second, with events that say so."""


class AnswerStream:
    """One streamed answer: an iterator over its events; the last one is `Done`.

    Iterating raises `RequestFailed` if the request fails, and `Unreachable` if the connection
    breaks before the answer's end.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.id = response.headers.get("X-Request-Id", "")
        self._url = str(response.url.origin())
        self._lines = response.content
        self._first: Event | None = None
        self._has_ended = False

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        event, self._first = self._first, None
        event = event or await self._next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def begin(self) -> None:
        """Wait for the first event. Raises the same errors as iterating."""
        self._first = await self._next()

    async def answer(self) -> Answer:
        """Return the whole answer. Call it before the first event was read."""
        return put_together(self.id, [event async for event in self])

    async def _next(self) -> Event | None:
        if self._has_ended:
            return None
        while line := await self._line():
            event = event_of(loads(line)) if line.strip() else None
            if isinstance(event, Failed):
                self._has_ended = True
                raise event.error
            if event is not None:
                self._has_ended = isinstance(event, Done)
                return event
        raise Unreachable("the connection closed before the answer's end")

    async def _line(self) -> bytes:
        with reaching(self._url):
            return await self._lines.readline()


class Client:
    """Calls of a balancer's two ports. Use it as a context manager, or `close` it.

    Calls raise `RequestFailed` if the balancer refuses, and `Unreachable` if nobody answers.
    Both are retried first if that is safe; see `Retries`. Cancelling the task that waits for a
    call, or leaving a stream, cancels the request.

    >>> async with Client() as client:
    ...     answer = await client.generate(prompt="The balancer", max_tokens=8, temperature=0)
    ...     print(answer.finish_reason, answer.usage.completion_tokens)
    length 8
    """

    def __init__(
        self,
        url: str = INFERENCE_URL,
        *,
        management: str = MANAGEMENT_URL,
        key: str | None = None,
        tls_ca: str | Path | None = None,
        retries: Retries | None = None,
    ) -> None:
        """Prepare the client. `key` is sent as `Authorization: Bearer`.

        `tls_ca` is a file with the authority that signed the certificates of `https://` addresses.
        Without the file, the system's authorities are trusted. Raises `ValueError` if the file
        cannot be used.
        """
        retries = retries or Retries()
        tls = tls_of(tls_ca)
        self._http = Http(url, key, retries, tls)
        self.jobs = BatchJobs(self._http)
        self.management = Management(Http(management, key, retries, tls))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; open streams end."""
        await self._http.close()
        await self.management.close()

    # ---- text

    async def generate(self, **request: Unpack[GenerateOptions]) -> Answer:
        """Return a whole answer."""
        body, _ = await self._http.call("POST", "/api/v1/generate", {**request, "stream": False})
        return answer_of(body)

    @asynccontextmanager
    async def stream(self, **request: Unpack[GenerateOptions]) -> AsyncIterator[AnswerStream]:
        """Stream an answer; leaving the context cancels the rest of it.

        >>> async with Client() as client, client.stream(prompt="The", max_tokens=3) as events:
        ...     print([type(event).__name__ async for event in events][-1])
        Done
        """
        async with AsyncExitStack() as stack:
            yield await self._http.retried(partial(self._begin, stack, {**request, "stream": True}))

    async def _begin(self, stack: AsyncExitStack, body: Mapping[str, Any]) -> AnswerStream:
        async with AsyncExitStack() as own:
            opening = self._http.open("POST", "/api/v1/generate", body, headers=TELL_WAITING)
            events = AnswerStream(await own.enter_async_context(opening))
            await events.begin()
            stack.push_async_callback(own.pop_all().aclose)
        return events

    def batch(
        self, requests: Iterable[GenerateOptions], *, concurrency: int | None = None
    ) -> AsyncGenerator[BatchResult, None]:
        """Yield the answers to many requests, in the order in which they end.

        `requests` is read as answers come, so it may be of any length. `concurrency` of them
        run or wait at the balancer at once; by default, somewhat more than the fleet has slots. A
        request that fails is a result with an `error` and stops no other.

        >>> async with Client() as client:
        ...     prompts = [{"prompt": word, "max_tokens": 2} for word in ("one", "two", "three")]
        ...     results = [result async for result in client.batch(prompts)]
        ...     print(sorted(result.index for result in results))
        [0, 1, 2]
        """
        return run_batch(
            lambda request: self.generate(**request),
            requests,
            concurrency=self.wanted_concurrency
            if concurrency is None
            else lambda: _as(concurrency),
        )

    async def wanted_concurrency(self) -> int:
        """Return how many requests keep all slots busy while some wait."""
        slots = int((await self.readiness())["slots"]["total"])
        return max(4, slots + slots // 4 + 1)

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[Socket]:
        """Open a WebSocket for many requests."""
        opening = self._http.open_socket("/api/v1/socket")
        async with opening as connection, Socket.over(connection) as socket:
            yield socket

    # ---- queries

    async def embed(self, texts: Sequence[str], *, model: str | None = None) -> list[list[float]]:
        """Return a vector for each text.

        Raises `RequestFailed` if one of the texts cannot be embedded.
        """
        body = {"input": list(texts)} | ({"model": model} if model else {})
        answer = await self.post("/v1/embeddings", body)
        return [each["embedding"] for each in sorted(answer["data"], key=lambda d: d["index"])]

    async def models(self) -> list[dict[str, Any]]:
        """Return the models that requests can name, in OpenAI's format."""
        body, _ = await self._http.call("GET", "/v1/models")
        models: list[dict[str, Any]] = body["data"]
        return models

    async def readiness(self) -> Any:
        """Return `{"ready", "slots": {"total", "busy"}}`, even of a fleet without slots."""
        try:
            body, _ = await self._http.call("GET", "/ready")
        except RequestFailed as error:
            if error.status != 503:
                raise
            return {"ready": False, "slots": {"total": 0, "busy": 0}}
        return body

    async def date(self) -> str | None:
        """Return the balancer's time, in HTTP's format."""
        _, headers = await self._http.call("GET", "/health")
        return headers.get("Date")

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Make another call of the inference port, such as `/v1/chat/completions`, not streamed."""
        answer, _ = await self._http.call("POST", path, body)
        return answer


async def _as(number: int) -> int:
    return number
