"""An agent that sends a prefix, and one that receives it, over loopback."""

import threading
from collections.abc import Callable

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.disk_cache import DiskCache
from arriero.agent.engine.prompt_store.stored_prompt import ModelIdentity, Origin, StoredPrompt
from arriero.agent.peers.counts import Counts
from arriero.agent.peers.kv_receiver import KvReceiver
from arriero.agent.peers.kv_sender import READING, KvSender
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.quantities import LOOPBACK, Address
from tests.agent.engine.fake_engine import stored_prompt

MODEL = ModelIdentity(architecture="a", parameters=1, size_bytes=2, digest="d")
ORIGIN = Origin(model=MODEL, engine="e 1", cache="c")
CELL_BYTES = 64
MOST_TOKENS = 100
TOKENS = tuple(range(1, 21))
PROMPT = Prompt((*TOKENS, 40, 41))
KEPT = stored_prompt(*TOKENS)
ANY_PORT = Address(LOOPBACK, 0)


class Cache:
    """Has `kept`; `asked` says for what."""

    def __init__(self, kept: StoredPrompt | None = KEPT) -> None:
        self.kept = kept
        self.asked: list[Prompt] = []
        self.taken_back: list[Prompt] = []

    def hand_out(
        self, prompt: Prompt, reply: Callable[[StoredPrompt | None], None]
    ) -> Callable[[], None]:
        self.asked.append(prompt)
        self.answer(reply)
        return lambda: self.taken_back.append(prompt)

    def answer(self, reply: Callable[[StoredPrompt | None], None]) -> None:
        reply(self.kept)


class Mute(Cache):
    """An engine that never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = threading.Event()

    def answer(self, reply: Callable[[StoredPrompt | None], None]) -> None:
        self.was_asked.set()


def sender(
    cache: Cache,
    counts: Counts | None = None,
    origin: Origin = ORIGIN,
    reading: float = READING,
    disk: DiskCache | None = None,
) -> KvSender:
    return KvSender(
        cache.hand_out,
        disk,
        origin=origin,
        most_tokens=MOST_TOKENS,
        counts=Counts() if counts is None else counts,
        reading=reading,
    )


def receiver(counts: Counts | None = None, most_bytes: int = 10**9) -> KvReceiver:
    return KvReceiver(
        origin=ORIGIN,
        cell_bytes=CELL_BYTES,
        most_bytes=most_bytes,
        counts=Counts() if counts is None else counts,
    )


def source(address: Address | str, ticket: str = "t", seconds: float = 30.0) -> PrefixSource:
    return PrefixSource(address=str(address), ticket=ticket, seconds=seconds)
