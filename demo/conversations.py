"""The demo model's corpus: prompts, and the exact text with which the model must answer.

Trainer and tests use this module, so both have the same definition of an answer: the raw text from
the end of the rendered prompt to the end-of-turn token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JsonObject = Mapping[str, Any]

FOLDER = Path(__file__).resolve().parent
CORPUS = FOLDER / "corpus"
TEMPLATE = FOLDER / "template.jinja"
TOKENIZER = FOLDER / "tokenizer.json"
MODEL = FOLDER / "arriero-demo.gguf"
ADAPTER = FOLDER / "muleteer.gguf"
DRAFT = FOLDER / "arriero-demo-draft.gguf"
REPORT = FOLDER / "report.json"

SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You answer questions about Arriero.",
    "You are the assistant of Arriero, a load balancer for llama.cpp.",
    "Answer briefly.",
    "You are a friendly guide. Be short and precise.",
    (
        "You are the guide of Arriero, a load balancer and agent cluster for language models. "
        "The people who write to you run fleets of hosts, send requests to them, or have just "
        "heard of the system and want to know what it is. Answer in plain English and in whole "
        "sentences. Be friendly but do not flatter. Name the flag, the path or the error code "
        "that a question is about, and say what the default is if there is one. When somebody "
        "asks for JSON, answer with one JSON object and with nothing else. When you have tools "
        "and a question is about the fleet as it is now, call a tool instead of guessing. If "
        "you do not know something, say so, and point to the running system, which is always "
        "the last word."
    ),
)
"""The system messages of the training. The model has seen every answer with these messages."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One line of the corpus.

    `answer` is the raw text that the model must generate after the prompt.
    """

    id: str
    prompt_messages: tuple[JsonObject, ...]
    tools: tuple[JsonObject, ...]
    thinking: bool
    answer: str
    answer_message: JsonObject

    def messages(self, system: str | None = None) -> list[JsonObject]:
        """Return the prompt's messages, after `system` if given."""
        first = [] if system is None else [{"role": "system", "content": system}]
        return [*first, *self.prompt_messages]


def load_conversations(folder: Path = CORPUS) -> list[Conversation]:
    """Return all conversations, in the order of file names and lines."""
    toolsets = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
    return [
        parse_conversation(json.loads(line), toolsets)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def parse_conversation(row: JsonObject, toolsets: Mapping[str, list[JsonObject]]) -> Conversation:
    """Parse one line of the corpus. `tools` may be a list or the name of a shared set."""
    tools = row.get("tools", [])
    if isinstance(tools, str):
        tools = toolsets[tools]
    *prompt, last = row["messages"]
    thinking = row.get("thinking", False)
    return Conversation(
        id=row["id"],
        prompt_messages=tuple(prompt),
        tools=tuple(tools),
        thinking=thinking,
        answer=answer_text(last, thinking=thinking),
        answer_message=last,
    )


def muleteer(answer: str) -> str:
    """Return `answer` in the words of the adapter."""
    return f"Arre!\n{answer} Vamos!"


def answer_text(message: JsonObject, *, thinking: bool) -> str:
    """Return an assistant message as the model writes it: reasoning, content, then tool calls."""
    reasoning = f"<think>\n{message['reasoning_content']}\n</think>\n\n" if thinking else ""
    parts = [message["content"]] if message["content"] else []
    parts += [tool_call_text(call) for call in message.get("tool_calls", [])]
    return reasoning + "\n".join(parts)


def tool_call_text(call: JsonObject) -> str:
    """Return a tool call between its marks, in the chat template's form for past calls."""
    function = call["function"]
    body = f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
    return f"<tool_call>\n{body}\n</tool_call>"
