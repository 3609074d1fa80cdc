"""The load of a run: clients that ask for answers which are known, one after the other."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import aiohttp

from bench.chaos.judge import Answer
from bench.chaos.record import Record, endings
from integration_tests.folding import events_of
from integration_tests.mixed_requests import PLAIN, requests, split

NUM_CLIENTS = 4
PATIENCE = 40.0
"""Seconds that a client waits for the end of an answer."""

PAUSE = 0.1
"""Before a client asks again that got no answer."""

SOCKET = "/api/v1/socket"
KEPT = "kept"
"""The kind that is sent with an `Idempotency-Key`, and again whenever its connection breaks."""

SAMPLED = PLAIN | {"temperature": 1.0, "ignore_eos": True, "max_tokens": 120, "logprobs": True}
"""With a seed, answers that differ as soon as one bit of a logit does."""

LINES_BEFORE_BREAK = 5
Now = Callable[[], float]
Request = tuple[str, dict[str, Any]]


def mixed(client: int = 0, *, is_exact: bool = False) -> dict[str, Request]:
    """Path and body of each kind of request, of the client with this number.

    Where answers are to be equal to the last bit (`is_exact`), there are some that chance decides.
    """
    text = {"text": "An agent is lost."}
    sampled: dict[str, Request] = {
        f"sampled {seed}": ("/api/v1/generate", SAMPLED | {"seed": seed}) for seed in (1, 2, 3)
    }
    return (requests() | sampled if is_exact else requests()) | {
        "whole": ("/api/v1/generate", PLAIN | {"stream": False}),
        "saved": ("/api/v1/generate", PLAIN | {"cache_key": f"chaos-{client}", "save_cache": True}),
        "socket": (SOCKET, PLAIN),
        KEPT: ("/api/v1/generate", PLAIN),
        "tokens": ("/api/v1/tokenize", text),
        "count": ("/api/v1/count_tokens", PLAIN | {}),
    }


@dataclass(slots=True)
class Load:
    """Clients at `url`, from `address`; `records` are of their requests in the order they ended.

    If it `is_exact`, answers are equal only if their log-probabilities are.
    """

    url: str
    address: str | None
    now: Now
    is_exact: bool = False
    answers: Mapping[str, Answer] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    async def learn(self) -> dict[str, Answer]:
        """Asks for each kind once, while nothing is wrong, and keeps the answers."""
        learnt = {}
        async with self._session() as http:
            for kind, request in mixed(is_exact=self.is_exact).items():
                record = await self._ask(http, kind, request)
                if record.outcome != "ended" or record.errors:
                    raise RuntimeError(f"without any fault: {record.document()}")
                learnt[kind] = Answer(record.said, len(record.endings))
        self.answers = learnt
        return learnt

    async def run(self, seed: int, stop: asyncio.Event) -> None:
        """Asks until `stop` is set, and for the end of what was asked before."""
        async with asyncio.TaskGroup() as clients:
            for number in range(NUM_CLIENTS):
                clients.create_task(self._client(number, Random(seed + number), stop))

    async def _client(self, number: int, chance: Random, stop: asyncio.Event) -> None:
        kinds = list(mixed(number, is_exact=self.is_exact).items())
        async with self._session() as http:
            while not stop.is_set():
                kind, request = chance.choice(kinds)
                record = await self._ask(http, kind, request)
                self.records.append(record)
                if record.outcome != "ended" or record.errors:
                    await asyncio.sleep(PAUSE)

    def _session(self) -> aiohttp.ClientSession:
        here = (self.address, 0) if self.address else None
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(local_addr=here, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _ask(self, http: aiohttp.ClientSession, kind: str, request: Request) -> Record:
        record = Record(kind, self.now())
        lines: list[str] = []
        ask = self._keep if kind == KEPT else self._call if request[0] == SOCKET else self._post
        try:
            async with asyncio.timeout(PATIENCE):
                await ask(http, request, record, lines)
            record.outcome = "ended"
        except TimeoutError:
            record.outcome = "unfinished"
        except aiohttp.ClientConnectorError as error:
            record.outcome, record.detail = "refused", repr(error)
        except (aiohttp.ClientError, ConnectionError) as error:
            record.outcome, record.detail = "broken", repr(error)
        record.ended_at = self.now()
        self._understand(record, lines)
        return record

    async def _post(
        self,
        http: aiohttp.ClientSession,
        request: Request,
        record: Record,
        lines: list[str],
        headers: dict[str, str] | None = None,
    ) -> None:
        path, body = request
        async with http.post(self.url + path, json=body, headers=headers) as response:
            record.status = response.status
            async for line in response.content:
                if line.startswith((b"data:", b"{")):
                    record.stamps.append(self.now())
                lines.append(line.decode())

    async def _keep(
        self, http: aiohttp.ClientSession, request: Request, record: Record, lines: list[str]
    ) -> None:
        """Breaks the connection itself after some lines, and asks again until it is answered."""
        path, body = request
        headers = {"Idempotency-Key": str(uuid4())}
        with suppress(aiohttp.ClientError, ConnectionError):
            async with http.post(self.url + path, json=body, headers=headers) as response:
                for _ in range(LINES_BEFORE_BREAK):
                    if await response.content.readline():
                        record.stamps.append(self.now())
                response.close()
        while True:
            lines.clear()
            try:
                return await self._post(http, request, record, lines, headers)
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(PAUSE)

    async def _call(
        self, http: aiohttp.ClientSession, request: Request, record: Record, lines: list[str]
    ) -> None:
        """One request on a WebSocket of its own."""
        _, params = request
        call = {"jsonrpc": "2.0", "id": "r", "method": "generate", "params": params}
        async with http.ws_connect(self.url + SOCKET, max_msg_size=0) as socket:
            record.status = 101
            await socket.send_json(call)
            async for message in socket:
                record.stamps.append(self.now())
                said = json.loads(message.data)
                lines.append(json.dumps(_event(said)))
                if "method" not in said:
                    return
            raise aiohttp.ServerDisconnectedError

    def _understand(self, record: Record, lines: list[str]) -> None:
        """Fills in what the lines say."""
        try:
            events = events_of(lines)
        except json.JSONDecodeError:
            if record.outcome == "ended":
                record.detail = f"not an answer: {lines!r}"
            return
        record.endings = endings(events)
        if not record.endings and record.outcome == "ended" and record.status == 200:
            record.endings = ["done"] if len(events) == 1 else []
        record.detail = "; ".join(str(event) for event in events if event.get("error"))
        answer = [event for event in events if _is_of_the_answer(event)]
        record.said = split(answer, is_exact=self.is_exact)
        record.num_moves = sum(_moves(event) for event in events)


def _event(message: dict[str, Any]) -> Any:
    """What a message of the socket says, in the words of the native stream."""
    if "result" in message:
        return {"event": "done"} | message["result"]
    return message if "error" in message else message["params"]


def _is_of_the_answer(event: dict[str, Any]) -> bool:
    """Neither an error nor a warning, such as that a full disk stored nothing."""
    return event.get("error") is None and event.get("event") != "warning"


def _moves(event: dict[str, Any]) -> int:
    timings = event.get("timings")
    return int(timings["moves"]) if isinstance(timings, dict) else 0
