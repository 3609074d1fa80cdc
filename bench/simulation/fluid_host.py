"""A simulated agent whose answers flow: no event for a step, so that a million requests are quick.

Prompts are computed one after the other, answers are generated together. A step with `n` sequences
takes `step + n * sequence` seconds. While a prompt is computed, chunks of `STALL` seconds and steps
take turns, as an engine's scheduler has them with `--max-stall`. Between two changes (a start, the
end of a prompt or of an answer) all rates are constant, so only changes are events.
"""

import heapq
import zlib
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from arriero.shared.inference import ChatMessage, Rates, RequestId, Usage
from arriero.shared.messages import Ended, Item, Piece, PromptRead, Start

STALL = 0.5
"""Seconds for which a chunk of a prompt keeps the answers waiting."""

_EPSILON = 1e-6
"""Seconds: a sequence so close to its end has ended, since times are rounded."""


TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Prompt tokens a second; seconds of a step, and what each sequence in it adds."""

    prefill: float = 300.0
    step: float = 0.03
    sequence: float = 0.01


Prefix = tuple[int, ...]
"""Hashes of the messages so far."""


class Cache:
    """Beginnings by last use, and the tokens that each adds to the one before."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._tokens: OrderedDict[Prefix, int] = OrderedDict()
        self.size = 0

    def cached(self, prefixes: list[Prefix]) -> int:
        """How many tokens of a prompt are here."""
        num = 0
        for prefix in prefixes:
            if prefix not in self._tokens:
                break
            num += self._tokens[prefix]
        return num

    def use(self, prefixes: list[Prefix], tokens: list[int]) -> None:
        """These are here now; others go. Ends go before beginnings."""
        for prefix, num in zip(reversed(prefixes), reversed(tokens), strict=True):
            self.size += num - self._tokens.pop(prefix, 0)
            self._tokens[prefix] = num
        while self.size > self._capacity and len(self._tokens) > len(prefixes):
            _, num = self._tokens.popitem(last=False)
            self.size -= num


def prefixes_of(messages: tuple[ChatMessage, ...]) -> tuple[list[Prefix], list[int]]:
    """The beginnings of a conversation, and the tokens of each message."""
    prefixes: list[Prefix] = []
    tokens = []
    for message in messages:
        before = prefixes[-1] if prefixes else ()
        prefixes.append((*before, zlib.crc32(f"{message.role}:{message.text}".encode())))
        tokens.append(max(1, len(message.text) // TOKEN_BYTES))
    return prefixes, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """`slots` at once, and a cache of so many tokens."""

    slots: int = 4
    cache: int = 16_384
    speeds: Speeds = field(default_factory=Speeds)


@dataclass(slots=True)
class Running:
    """A request here: `left` tokens to read; it ends when the host's `flow` has come to `until`."""

    id: RequestId
    prefixes: list[Prefix]
    tokens: list[int]
    num_prompt: int
    num_cached: int
    left: float
    to_give: int
    num_given_before: int
    read_at: float = 0.0
    flow_at_start: float = 0.0
    until: float = 0.0


@dataclass(slots=True)
class FluidHost:
    """Time passes by `advance`, which gives what came of it; `next_change` says when to call it."""

    speeds: Speeds
    cache: Cache
    running: dict[RequestId, Running] = field(default_factory=dict)
    flow: float = 0.0
    """Tokens that each generating sequence has got since the beginning, were it there so long."""
    num_computed: float = 0.0
    """Tokens of prompts that were computed, those computed again included."""
    _now: float = 0.0
    _reading: deque[Running] = field(default_factory=deque)
    _ends: list[tuple[float, str]] = field(default_factory=list)

    def start(self, start: Start, now: float) -> None:
        """Take a request; `advance` has been called for `now`."""
        prefixes, tokens = prefixes_of(start.request.messages or ())
        given = len(start.continuation.tokens) if start.continuation else 0
        num_prompt = sum(tokens)
        num_cached = min(self.cache.cached(prefixes), num_prompt - 1)
        left = num_prompt - num_cached + given
        one = Running(
            id=start.id,
            prefixes=prefixes,
            tokens=tokens,
            num_prompt=num_prompt,
            num_cached=num_cached,
            left=left,
            to_give=start.request.max_tokens or 1,
            num_given_before=given,
        )
        self.num_computed += left
        self.running[one.id] = one
        self._reading.append(one)

    def next_change(self) -> float | None:
        """When the prompt that is being read, or the shortest answer, is finished."""
        reading, generating = self._rates()
        changes = []
        if self._reading:
            changes.append(self._now + max(0.0, self._reading[0].left) / reading)
        if self._ends:
            changes.append(self._now + max(0.0, self._ends[0][0] - self.flow) / generating)
        return min(changes, default=None)

    def advance(self, now: float) -> list[Item]:
        """What happened until `now`, which is not after the next change."""
        reading, generating = self._rates()
        seconds, self._now = now - self._now, now
        if self._ends:
            self.flow += seconds * generating
        items: list[Item] = []
        while self._ends and self._ends[0][0] <= self.flow + generating * _EPSILON:
            _, id = heapq.heappop(self._ends)
            items.append(self._ended(self.running.pop(RequestId(id)), now))
        if self._reading:
            first = self._reading[0]
            first.left -= seconds * reading
            if first.left <= reading * _EPSILON:
                self._reading.popleft()
                items.append(self._read(first, now))
        return items

    def unsent(self) -> list[Item]:
        """The tokens that the running requests got here so far, as one piece each."""
        reading = {one.id for one in self._reading}
        return [
            _piece(one, int(self.flow - one.flow_at_start) + 1)
            for one in self.running.values()
            if one.id not in reading
        ]

    def _rates(self) -> tuple[float, float]:
        """Tokens of the first prompt, and of each answer, a second."""
        num = len(self._ends)
        step = self.speeds.step + self.speeds.sequence * num
        if not num:
            return self.speeds.prefill, 0.0
        if not self._reading:
            return 0.0, 1 / step
        return self.speeds.prefill * STALL / (STALL + step), 1 / (STALL + step)

    def _read(self, one: Running, now: float) -> Item:
        """The last step of a prompt gives the first token."""
        self.cache.use(one.prefixes, one.tokens)
        one.read_at = now
        one.flow_at_start = self.flow
        one.until = self.flow + one.to_give - one.num_given_before - 1
        heapq.heappush(self._ends, (one.until, one.id))
        return PromptRead(id=one.id, prompt_tokens=one.num_prompt, cached_tokens=one.num_cached)

    def _ended(self, one: Running, now: float) -> Item:
        self.cache.use(one.prefixes, one.tokens)
        num_steps = one.to_give - one.num_given_before - 1
        seconds = now - one.read_at
        usage = Usage(
            prompt_tokens=one.num_prompt,
            cached_tokens=one.num_cached,
            completion_tokens=one.to_give,
        )
        rates = Rates(
            prefill_tokens_per_second=self.speeds.prefill,
            decode_tokens_per_second=num_steps / seconds if num_steps > 0 and seconds else None,
        )
        return Ended(id=one.id, finish_reason="length", usage=usage, rates=rates)


def _piece(one: Running, num_new: int) -> Item:
    count = max(0, min(num_new, one.to_give - one.num_given_before - 1))
    return Piece(id=one.id, text="x" * count, tokens=tuple([1] * count))
