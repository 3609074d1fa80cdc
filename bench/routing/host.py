"""A simulated agent: steps that take time, slots, and a cache from which the oldest goes.

A step gives each running sequence a token and computes a chunk of the first prompt that is not
computed yet. What a request asks is kept as the chain of its messages, as an engine keeps tokens.
"""

import zlib
from collections import OrderedDict
from dataclasses import dataclass, field

from arriero.shared.inference import ChatMessage, Rates, RequestId, Usage
from arriero.shared.messages import Ended, Item, PromptRead, Start

CHUNK = 256
"""Tokens of a prompt that are computed in a step."""

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


@dataclass(slots=True)
class _Running:
    id: RequestId
    prefixes: list[Prefix]
    tokens: list[int]
    num_prompt: int
    num_cached: int
    left: int
    to_give: int
    num_given: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


def prefixes_of(messages: tuple[ChatMessage, ...]) -> tuple[list[Prefix], list[int]]:
    """The beginnings of a conversation, and the tokens of each message."""
    prefixes: list[Prefix] = []
    tokens = []
    for message in messages:
        before = prefixes[-1] if prefixes else ()
        prefixes.append((*before, zlib.crc32(f"{message.role}:{message.text}".encode())))
        tokens.append(max(1, len(message.text) // TOKEN_BYTES))
    return prefixes, tokens


@dataclass(slots=True)
class Host:
    """`step` after `step`, while there is anything to do."""

    speeds: Speeds
    cache: Cache
    running: list[_Running] = field(default_factory=list)

    def start(self, start: Start) -> None:
        prefixes, tokens = prefixes_of(start.request.messages or ())
        num_prompt = sum(tokens)
        num_cached = min(self.cache.cached(prefixes), num_prompt - 1)
        answer = start.request.max_tokens or 1
        self.running.append(
            _Running(
                id=start.id,
                prefixes=prefixes,
                tokens=tokens,
                num_prompt=num_prompt,
                num_cached=num_cached,
                left=num_prompt - num_cached,
                to_give=answer,
            )
        )

    def step(self) -> tuple[float, list[Item]]:
        """How long it takes, and what it gives."""
        generating = [one for one in self.running if not one.left]
        reading = next((one for one in self.running if one.left), None)
        chunk = min(CHUNK, reading.left) if reading else 0
        seconds = chunk / self.speeds.prefill
        if generating:
            seconds += self.speeds.step + self.speeds.sequence * len(generating)
        items: list[Item] = []
        for one in generating:
            one.num_given += 1
            one.decode_seconds += seconds
            if one.num_given >= one.to_give:
                items.append(self._end(one))
        if reading is not None:
            reading.left -= chunk
            reading.prefill_seconds += chunk / self.speeds.prefill
            if not reading.left:
                items.append(self._begin(reading))
        return seconds, items

    def _begin(self, one: _Running) -> Item:
        self.cache.use(one.prefixes, one.tokens)
        return PromptRead(id=one.id, prompt_tokens=one.num_prompt, cached_tokens=one.num_cached)

    def _end(self, one: _Running) -> Item:
        self.running.remove(one)
        self.cache.use(one.prefixes, one.tokens)
        computed = one.num_prompt - one.num_cached
        usage = Usage(
            prompt_tokens=one.num_prompt,
            cached_tokens=one.num_cached,
            completion_tokens=one.num_given,
        )
        rates = Rates(
            prefill_tokens_per_second=computed / max(one.prefill_seconds, 1e-9),
            decode_tokens_per_second=one.num_given / one.decode_seconds,
        )
        return Ended(id=one.id, finish_reason="length", usage=usage, rates=rates)
