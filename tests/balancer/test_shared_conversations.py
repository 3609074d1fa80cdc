"""What an API keeps of a conversation comes back from a store as it was."""

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.balancer.api.anthropic.requests import parse_messages
from arriero.balancer.api.anthropic.threads import Thread, stored_thread
from arriero.balancer.api.conversation_store import ConversationStore
from arriero.balancer.api.openai.responses.background import answer_to
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.balancer.api.openai.responses.stored import Stored
from arriero.balancer.persistence import Persistence
from arriero.balancer.settings import BalancerSettings
from arriero.balancer.shared_conversations import KINDS, open_conversations
from arriero.balancer.store.url import parse_store_url
from arriero.shared.inference import RequestId, Token
from tests.balancer.api.fake_runtime import done
from tests.balancer.store.conftest import postgres
from tests.balancer.store.postgres import PostgresServer

__all__ = ["postgres"]

PICTURE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": [1, None, "é\u0000"]}}
DOCUMENT = {"type": "text", "data": "long", "media_type": "text/plain"}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "so"}, CALL]},
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "1"}]},
            {"type": "image", "source": PICTURE},
            {"type": "document", "source": DOCUMENT, "title": "t"},
        ],
    },
    {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
]
TOOLS = [
    {"name": "f", "input_schema": {"type": "object"}, "description": "d"},
    {"type": "bash_20250124", "name": "bash"},
]


def threads() -> list[Thread]:
    bodies = [
        {"messages": MESSAGES[:1]},
        {"messages": MESSAGES, "tools": TOOLS, "system": [{"type": "text", "text": "s"}]},
    ]
    found = []
    for body in bodies:
        wanted = parse_messages(json.dumps({"max_tokens": 5} | body).encode())
        answer: Any = [{"type": "text", "text": "well"}]
        found.append(stored_thread(wanted.conversation(), answer, 100))
    return found


INPUT = [
    {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
    {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}],
    },
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
]


def responses() -> list[Stored]:
    store = ConversationStore()
    previous = None
    for number, input in enumerate(("é\u0000", INPUT)):
        wanted = parse_response(json.dumps({"input": input}).encode())
        answer = answer_to(
            RequestId(str(number)),
            store,
            wanted,
            previous,
            served="m",
            service_tier="default",
            created_at=1.0,
            owner=None,
        )
        answer.begin()
        answer.take(Token("well"))
        answer.take(done())
        previous = store.find(f"resp_{number}", Stored, 0.0)
        assert previous is not None
    return [found for id in "01" if (found := store.find(f"resp_{id}", Stored, 0.0)) is not None]


@pytest.mark.parametrize("entry", [*threads(), *responses()])
def test_it_comes_back_as_it_was(entry: Stored | Thread) -> None:
    _, adapter = KINDS[type(entry)]
    assert adapter.validate_json(adapter.dump_json(entry)) == entry


async def test_of_one_balancer_they_are_in_memory(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/state.db"):
        persistence = await Persistence.open(parse_store_url(url))
        assert open_conversations(BalancerSettings(), persistence)[1] is None
        await persistence.close()


async def test_of_several_they_are_in_the_store(postgres: PostgresServer) -> None:
    persistence = await Persistence.open(parse_store_url(postgres.database()))
    conversations, keeper = open_conversations(BalancerSettings(), persistence)
    assert keeper is not None
    [thread, _] = threads()
    conversations.keep("m", thread, 0.0, owner="ana@1")
    assert keeper.num_waiting == 1
    nothing = BalancerSettings.model_validate({"responses_limit": 0})
    assert open_conversations(nothing, persistence)[1] is None
    await persistence.close()
