"""Questions to which the demo model's whole answer is known, and how to ask them."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp

from demo import conversations

REPORT = Path(conversations.__file__).parent / "report.json"

ENDLESS = {
    "messages": [{"role": "user", "content": "What is a slot?"}],
    "ignore_eos": True,
    "temperature": 0,
}
"""A request that goes on to its slot's ceiling."""

LONG_CONTEXT = 16384
"""A ceiling that an endless request does not reach within a test."""


@dataclass(frozen=True)
class Case:
    """One request and the text that must come back for it."""

    id: str
    body: dict[str, Any]
    answer: str


@cache
def cases() -> tuple[Case, ...]:
    """Every conversation that the model gives back word for word, by its own report."""
    inexact = set(json.loads(REPORT.read_text())["without_system"]["not_exact"])
    return tuple(
        Case(conversation.id, _body(conversation), conversation.answer)
        for conversation in conversations.load_conversations()
        if conversation.id not in inexact
    )


def _body(conversation: conversations.Conversation) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": list(conversation.prompt_messages),
        "temperature": 0,
    }
    if conversation.thinking:
        body["thinking"] = True
    if conversation.tools:
        body["tools"] = list(conversation.tools)
    return body


def plain_cases() -> tuple[Case, ...]:
    """The cases of a single question, without tools or thinking."""
    return tuple(
        case
        for case in cases()
        if len(case.body["messages"]) == 1 and not {"thinking", "tools"} & case.body.keys()
    )


@dataclass
class Answer:
    """A native stream read to its end."""

    status: int
    events: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return "".join(event["text"] for event in self.events if event["event"] == "token")

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]


async def generate(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Answer:
    """POST `body` to the native door and reads the answer, whatever it is, to its end."""
    async with http.post(f"{url}/api/v1/generate", json=body) as response:
        if response.status != 200:
            return Answer(response.status, [{"event": "error", **await response.json()}])
        return Answer(200, [json.loads(line) async for line in response.content])
