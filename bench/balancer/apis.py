"""The APIs that are measured: a request's bytes, and what its answer ends with."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROMPT = "Say the time, again and again."
KEY = "sk-bench"
"""Shown by every request: LiteLLM's proxy does not start without one, the others ask for none."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API over HTTP. `end` stands once in each whole answer, and no text can forge it."""

    path: str
    body: Callable[[int], dict[str, Any]]
    end: bytes

    def request(self, host: str, num_tokens: int) -> bytes:
        """A request for so many tokens, on a connection that stays open."""
        body = json.dumps(self.body(num_tokens)).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _chat(num_tokens: int) -> dict[str, Any]:
    return {
        "model": "simulated",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": num_tokens,
        "stream": True,
    }


def _native(num_tokens: int) -> dict[str, Any]:
    return {"prompt": PROMPT, "max_tokens": num_tokens}


APIS = {
    "openai": Api("/v1/chat/completions", _chat, b"data: [DONE]"),
    "anthropic": Api("/v1/messages", _chat, b"event: message_stop"),
    "native": Api("/api/v1/generate", _native, b'{"event":"done"'),
}
SOCKET = "socket"
"""The native API over WebSockets, with many requests on each."""


def call(id: int, num_tokens: int) -> bytes:
    """A `generate` call as a WebSocket frame, masked with zeros."""
    frame = {"jsonrpc": "2.0", "id": id, "method": "generate", "params": _native(num_tokens)}
    body = json.dumps(frame).encode()
    return b"\x81" + bytes([0x80 | 126]) + len(body).to_bytes(2, "big") + bytes(4) + body


def upgrade(host: str) -> bytes:
    """The request that opens a WebSocket."""
    return (
        f"GET /api/v1/socket HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
