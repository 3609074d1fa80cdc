"""Stand-ins with behaviour: a vocabulary of bytes, a worker that the test steps, a balancer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from websockets.asyncio.server import Server, ServerConnection, serve

from arriero.agent.engine.adapter import AdapterError
from arriero.agent.engine.fair_lock import FairLock
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.loaded_model import FillIn, LoadedModel
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sequence import (
    NewSequence,
    SequenceEnd,
    SequenceId,
    SequenceOutput,
    SequenceStats,
)
from arriero.agent.engine.statistics import NOTHING_DONE, Gone
from arriero.agent.engine.step_loop import Disk
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import (
    Cancel,
    FromAgent,
    FromBalancer,
    Heartbeat,
    Output,
    Start,
    decode_from_agent,
    encode_from_balancer,
)
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Cells, Statistics
from tests.agent.link.sessions import welcome
from tests.waiting import HANGS

T = TypeVar("T")

BOS, EOS = 256, 257
BYTES_INFO = ModelInfo(
    name="bytes", architecture="none", parameters=0, size_bytes=0, context_size=16
)
WELCOME = welcome(interval=60.0, timeout=300.0)


class ByteVocab:
    """A token a byte; `<s>` and `</s>` are control tokens, and a prompt begins with the former."""

    size = 258
    end_tokens = frozenset({EOS})
    suppressed_tokens: frozenset[int] = frozenset()
    bos_text = "<s>"
    eos_text = "</s>"
    control_texts = ("<s>", "</s>")

    fill_in: FillIn | None = None

    def __init__(self, *, adds_bos: bool = True) -> None:
        self._adds_bos = adds_bos

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        tokens = [BOS] if add_special and self._adds_bos else []
        for index, part in enumerate(text.split("<s>") if parse_special else [text]):
            tokens += [BOS] if index else []
            tokens += part.encode()
        return tuple(tokens)

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < BOS else b""

    def name(self, token: int) -> bytes:
        return {BOS: b"<s>", EOS: b"</s>"}.get(token) or self.piece(token)


def byte_model(
    template: str | None = "{{ messages[0].content }}", *, adds_bos: bool = True
) -> LoadedModel:
    return LoadedModel(BYTES_INFO, ByteVocab(adds_bos=adds_bos), template)


async def soon(awaitable: Awaitable[T]) -> T:
    """What is awaited, which has to come within `HANGS`."""
    return await asyncio.wait_for(awaitable, HANGS)


async def ends_soon(task: "asyncio.Task[T]") -> None:
    """Waits for the end of `task`, whatever it is."""
    done, _ = await asyncio.wait([task], timeout=HANGS)
    assert done, f"{task} goes on"


class Expected(asyncio.Queue[T]):
    """A queue from which everything comes soon."""

    async def get(self) -> T:
        return await soon(super().get())


class FakeWorker:
    """Runs what it is given as the test says, step by step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.options: LoadOptions | None = None
        self.lock = FairLock()
        self.on_step: Callable[[tuple[SequenceOutput, ...]], None] | None = None
        self.on_crash: Callable[[BaseException], None] | None = None
        self.on_change: Callable[[], None] = lambda: None
        self.model = byte_model()
        self.error: Exception | None = None
        self.expected: dict[SequenceId, bool] = {}
        """Whether each is background."""
        self.added: asyncio.Queue[NewSequence] = Expected()
        self.dropped: asyncio.Queue[SequenceId] = Expected()
        self.done = replace(NOTHING_DONE, cells=Cells(total=64))
        self.is_stopped = False
        self.kept: StoredPrompt | None = None
        self.disk: Disk | None = None
        self.adapters: dict[str, Path] = {}
        self.threads: tuple[int, int] | None = None
        self.gone = Gone()
        self.is_full = False
        self.failure: str | None = None

    def start(self) -> LoadedModel:
        if self.error is not None:
            raise self.error
        return self.model

    def use_disk(self, disk: Disk) -> None:
        self.disk = disk

    def hand_out(
        self,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
        *,
        start: int = 0,
        most_checkpoints: int = 1,
        can_wait: bool = False,
    ) -> Callable[[], None]:
        reply(self.kept)
        return lambda: None

    def use_threads(self, threads: int, threads_batch: int) -> None:
        self.threads = (threads, threads_batch)

    def use_adapters(self, files: Mapping[str, Path]) -> None:
        for digest, path in files.items():
            if path.stem == "broken":
                raise AdapterError(f"{path} is no adapter", digest)
        self.adapters = dict(files)

    def take_evicted(self, most: int) -> Gone:
        gone, self.gone = Gone(self.gone.keys[:most]), Gone(self.gone.keys[most:])
        return gone

    def stop(self) -> None:
        self.is_stopped = True

    def expect(self, sequence_id: SequenceId, *, is_background: bool) -> None:
        self.expected[sequence_id] = is_background

    def forget(self, sequence_id: SequenceId) -> None:
        self.expected.pop(sequence_id, None)

    def submit(self, sequence: NewSequence) -> None:
        self.expected.pop(sequence.id, None)
        self.added.put_nowait(sequence)

    def drop(self, sequence_id: SequenceId) -> None:
        self.expected.pop(sequence_id, None)
        self.dropped.put_nowait(sequence_id)

    def statistics(self) -> Statistics:
        return self.done

    def current_step(self) -> int | None:
        return None

    def has_room(self) -> bool:
        return not self.is_full

    def draft_failure(self) -> str | None:
        return self.failure

    def step(self, *outputs: SequenceOutput) -> None:
        assert self.on_step is not None
        self.on_step(outputs)

    def say(self, sequence: NewSequence, text: str, *, is_last: bool = False) -> None:
        """A step in which `sequence` gained `text`."""
        tokens = tuple(text.encode())
        stats = SequenceStats(
            prompt_tokens=len(sequence.prompt),
            cached_tokens=0,
            completion_tokens=len(tokens),
            prefill_tokens=len(sequence.prompt),
            prefill_seconds=0.5,
            decode_seconds=0.25,
        )
        end = SequenceEnd("stop", stats) if is_last else None
        self.step(SequenceOutput(sequence.id, tokens, end))

    def crash(self, error: BaseException) -> None:
        assert self.on_crash is not None
        self.on_crash(error)


class Peer:
    """One agent's connection, as the balancer sees it."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket

    async def next(self) -> FromAgent:
        """The next message that is neither a heartbeat nor statistics."""
        while isinstance(message := await self._read(), Heartbeat | Statistics):
            pass
        return message

    async def statistics(self) -> Statistics:
        """The next statistics; whatever comes before is passed over."""
        while not isinstance(message := await self._read(), Statistics):
            pass
        return message

    async def _read(self) -> FromAgent:
        return decode_from_agent(await soon(self.socket.recv()))

    async def output(self) -> Output:
        message = await self.next()
        assert isinstance(message, Output), message
        return message

    async def say(self, message: FromBalancer) -> None:
        await self.socket.send(encode_from_balancer(message), text=True)

    async def start(self, name: str, prompt: str = "x") -> None:
        await self.say(Start(id=RequestId(name), request=GenerateRequest(prompt=prompt)))

    async def cancel(self, name: str) -> None:
        await self.say(Cancel(id=RequestId(name)))


class FakeBalancer:
    """Listens on loopback; each connection waits in `peers` for the test to take it."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = Expected()
        self.paths: list[str] = []
        self._server: Server

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def peer(self) -> Peer:
        """The next connection, with its hello and the welcome behind it."""
        peer = await self.peers.get()
        await peer.next()
        await peer.say(WELCOME)
        return peer

    async def _take(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.paths.append(socket.request.path)
        self.peers.put_nowait(Peer(socket))
        await socket.wait_closed()

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int = 0) -> "AsyncIterator[FakeBalancer]":
        balancer = cls()
        async with serve(
            balancer._take, "127.0.0.1", port, compression=None, ping_interval=None, close_timeout=1
        ) as balancer._server:
            yield balancer
