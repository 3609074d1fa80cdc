"""Servers as the tests know them."""

from dataclasses import replace

from arriero.agent.upstream.protocol.bodies import Server
from arriero.agent.upstream.protocol.dialects import (
    ARRIERO,
    LLAMA_SERVER,
    OLLAMA,
    OTHER,
    SGLANG,
    VLLM,
    Dialect,
)
from arriero.shared.inference.abilities import ABILITIES


def server(dialect: Dialect) -> Server:
    """One that can do everything."""
    return Server(dialect=dialect, model="m", abilities=ABILITIES, embeds=True)


ARRIERO_SERVER = server(ARRIERO)
LLAMA = server(LLAMA_SERVER)
OLLAMA_SERVER = replace(server(OLLAMA), abilities=frozenset(("messages", "tools")))
OPENAI = server(OTHER)
SGLANG_SERVER = server(SGLANG)
VLLM_SERVER = server(VLLM)
