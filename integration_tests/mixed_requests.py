"""Requests of every kind of answer, and what is said in each, told apart by who says it."""

from typing import Any

from integration_tests.corpus import Case, cases, plain_cases
from integration_tests.folding import folded

MODEL = "arriero-demo"
SCHEMA = {"enum": ["An agent that is drained takes nothing new and finishes what it has got."]}
JSON = {"type": "json_schema", "schema": SCHEMA}
QUESTION = [{"role": "user", "content": "What is a slot?"}]
PLAIN = {"messages": QUESTION, "temperature": 0}


def case_with(*, calls: bool, reasoning: bool) -> Case:
    """The longest of its kind."""
    fitting = [c for c in cases() if bool(c.calls) == calls and bool(c.reasoning) == reasoning]
    return max(fitting, key=lambda c: len(c.answer) + len(c.reasoning) + len(str(c.calls)))


def requests() -> dict[str, tuple[str, dict[str, Any]]]:
    """Path and body of each kind of answer."""
    thinking = case_with(calls=False, reasoning=True)
    calling = case_with(calls=True, reasoning=False)
    tools = calling.body["tools"]
    anthropic_tools = [
        {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in tools
    ]
    chat = {"model": MODEL, "stream": True, "temperature": 0, "messages": QUESTION}
    native, openai = "/api/v1/generate", "/v1/chat/completions"
    longest = sorted(plain_cases(), key=lambda case: len(case.answer))[-4:]
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        f"text {number}": (native, case.body) for number, case in enumerate(longest)
    }
    return asked | {
        "log-probabilities": (native, PLAIN | {"logprobs": True}),
        "reasoning": (native, thinking.body),
        "call": (native, calling.body),
        "constrained": (native, PLAIN | {"grammar": JSON}),
        "batch": (
            "/api/v1/generate_batch",
            {"requests": [PLAIN | {"id": "a"}, longest[0].body | {"id": "b"}]},
        ),
        "chat, several": (openai, chat | {"n": 2}),
        "chat, call": (openai, chat | {"messages": calling.body["messages"], "tools": tools}),
        "responses": (
            "/v1/responses",
            {"model": MODEL, "stream": True, "temperature": 0, "input": thinking.body["messages"]}
            | {"reasoning": {"effort": "medium"}},
        ),
        "messages": (
            "/v1/messages",
            {"model": MODEL, "stream": True, "temperature": 0, "max_tokens": 300}
            | {"messages": calling.body["messages"], "tools": anthropic_tools},
        ),
    }


def split(events: list[Any], *, is_exact: bool = False) -> Any:
    """What is said, by the answer that says it: several may take turns. See `folded`."""
    parts: dict[str, list[Any]] = {}
    for event in events:
        if event.get("event") in ("waiting", "reading", "batch_done"):
            continue
        choices = event.get("choices") or [{}]
        which = event["id"] if event.get("id") in ("a", "b") else choices[0].get("index", "")
        parts.setdefault(str(which), []).append(event)
    return {which: folded(part, is_exact=is_exact) for which, part in parts.items()}
