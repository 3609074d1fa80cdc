"""The Python client, async and typed: inference, batches, and management of a fleet.

from arriero.client import Client

async with Client("http://127.0.0.1:8061") as client:
    answer = await client.generate(prompt="The balancer", max_tokens=8)
    async with client.stream(prompt="The balancer", max_tokens=8) as events:
        async for event in events:
            ...
"""

if __name__ != "arriero.client":
    raise ImportError(f"import this package as arriero.client, not as {__name__}")

from .answers import (
    Answer,
    Done,
    Event,
    Reading,
    Timings,
    Token,
    ToolCall,
    ToolCallStarted,
    Usage,
    Waiting,
    Warned,
)
from .batches import BatchResult
from .client import Client
from .errors import ArrieroError, RequestFailed, Unreachable, Untrusted
from .management import Management
from .retries import Retries
from .socket import Socket

__all__ = [
    "Answer",
    "ArrieroError",
    "BatchResult",
    "Client",
    "Done",
    "Event",
    "Management",
    "Reading",
    "RequestFailed",
    "Retries",
    "Socket",
    "Timings",
    "Token",
    "ToolCall",
    "ToolCallStarted",
    "Unreachable",
    "Untrusted",
    "Usage",
    "Waiting",
    "Warned",
]
