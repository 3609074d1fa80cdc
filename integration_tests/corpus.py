"""Test cases for which the demo model's whole answer is known, and how to send them."""

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

UNENDING = ENDLESS | {"n_discard": 64}
"""One that goes on beyond it, by context shift: no model is so fast that it would end."""

CUT_ANYWHERE: dict[str, Any] = {
    "prompt": " ".join(["agent host text f server client prompt step token one"] * 7),
    "ignore_eos": True,
    "max_tokens": 400,
    "temperature": 0,
}
"""Wherever its answer is cut, the text before the cut is read as the tokens that it was.

So the rest is the same, too. Most prompts have answers that are read as other tokens than they were
written in, since a model that may not end writes what a tokeniser would not.
"""

LONG_CONTEXT = 16384
"""A ceiling that an endless request does not reach within a test."""


@dataclass(frozen=True)
class Case:
    """One request and what must come back for it: content, reasoning, and calls in order."""

    id: str
    body: dict[str, Any]
    answer: str
    reasoning: str
    calls: tuple[dict[str, str], ...]


@cache
def cases() -> tuple[Case, ...]:
    """Every conversation that the model gives back word for word, by its own report."""
    inexact = set(json.loads(REPORT.read_text())["without_system"]["not_exact"])
    return tuple(
        _case(conversation)
        for conversation in conversations.load_conversations()
        if conversation.id not in inexact
    )


def _case(conversation: conversations.Conversation) -> Case:
    message = conversation.answer_message
    return Case(
        id=conversation.id,
        body=_body(conversation),
        answer=message["content"],
        reasoning=message["reasoning_content"] if conversation.thinking else "",
        calls=tuple(
            {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
            for call in message.get("tool_calls", ())
        ),
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
        """The content."""
        return self.of_kind("content")

    @property
    def reasoning(self) -> str:
        return self.of_kind("reasoning")

    @property
    def calls(self) -> tuple[dict[str, str], ...]:
        """The calls' names and arguments, in order."""
        calls = [event["call"] for event in self.events if event["event"] == "tool_call"]
        return tuple({"name": call["name"], "arguments": call["arguments"]} for call in calls)

    def of_kind(self, kind: str) -> str:
        tokens = [event for event in self.events if event["event"] == "token"]
        return "".join(event["text"] for event in tokens if event["kind"] == kind)

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]


async def generate(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Answer:
    """POST `body` to the native API and read the whole answer, even an error."""
    async with http.post(f"{url}/api/v1/generate", json=body) as response:
        if response.status != 200:
            return Answer(response.status, [{"event": "error", **await response.json()}])
        return Answer(200, [json.loads(line) async for line in response.content])
