"""The servers' APIs: the request for the same work, and the parsing of its end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """Exactly `num_tokens` tokens after `prompt`, greedily; end tokens are ignored."""

    prompt: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class End:
    """What a server says at the end of an answer."""

    num_tokens: int
    num_prompt_tokens: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class Dialect:
    """A server's API. `token_mark` stands once in each event that carries text.

    It holds quotes, which are escaped in a text, so no text can forge it. `read_end` answers
    `None` for an event that does not end an answer well.
    """

    path: str
    token_mark: bytes
    body: Callable[[Request], dict[str, Any]]
    read_end: Callable[[dict[str, Any]], End | None]


def _native_body(request: Request) -> dict[str, Any]:
    return {
        "prompt": request.prompt,
        "max_tokens": request.num_tokens,
        "ignore_eos": True,
        "temperature": 0,
    }


def _native_end(event: dict[str, Any]) -> End | None:
    if event.get("event") != "done":
        return None
    usage = event["usage"]
    return End(usage["completion_tokens"], usage["prompt_tokens"], usage["cached_tokens"])


def _llama_server_body(request: Request) -> dict[str, Any]:
    return {
        "prompt": request.prompt,
        "n_predict": request.num_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }


def _llama_server_end(event: dict[str, Any]) -> End | None:
    if event.get("stop") is not True:
        return None
    cached = event["timings"]["cache_n"]
    return End(event["tokens_predicted"], event["tokens_evaluated"], cached)


def _openai_body(request: Request) -> dict[str, Any]:
    return {
        "prompt": request.prompt,
        "max_tokens": request.num_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _openai_end(event: dict[str, Any]) -> End | None:
    if (usage := event.get("usage")) is None:
        return None
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return End(usage["completion_tokens"], usage["prompt_tokens"], cached)


NATIVE = Dialect("/api/v1/generate", b'{"event":"token"', _native_body, _native_end)
LLAMA_SERVER = Dialect("/completion", b'"stop":false', _llama_server_body, _llama_server_end)
OPENAI = Dialect("/v1/completions", b'"finish_reason":null', _openai_body, _openai_end)
"""Both servers speak it."""
