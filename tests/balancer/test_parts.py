"""A balancer's parts, made from its settings."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from arriero.balancer.api.anthropic.requests import parse_messages
from arriero.balancer.api.anthropic.threads import Thread, stored_thread
from arriero.balancer.api.conversation_store import ConversationStore
from arriero.balancer.api.openai.responses.answer import ResponseAnswer
from arriero.balancer.api.openai.responses.requests import parse_response
from arriero.balancer.api.openai.responses.stored import Stored
from arriero.balancer.control.desired_state import DesiredState
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.numbers import collect_numbers, measure_loop_delay
from arriero.balancer.parts import (
    KINDS,
    assemble,
    limits_of,
    open_conversations,
)
from arriero.balancer.persistence import Persistence
from arriero.balancer.settings import BalancerSettings
from arriero.balancer.store.records import StoreStatus
from arriero.balancer.store.url import parse_store_url
from arriero.shared.inference import RequestId, Token
from arriero.shared.lifecycle import StartupError
from tests.balancer.api.fake_runtime import done
from tests.balancer.store.postgres import PostgresServer


def test_every_limit_has_its_setting() -> None:
    settings = BalancerSettings(
        max_buffered_requests=1,
        buffered_request_timeout=2,
        first_token_timeout=3,
        token_timeout=4,
        request_timeout=5,
        heartbeat_interval=6,
        heartbeat_timeout=7,
    )
    assert limits_of(settings) == Limits(
        max_buffered_requests=1,
        buffered_request_timeout=2,
        first_token_timeout=3,
        token_timeout=4,
        request_timeout=5,
        heartbeat_interval=6,
        heartbeat_timeout=7,
    )


async def test_what_has_no_use_is_not_made() -> None:
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(BalancerSettings(), until_the_end)
        assert (parts.peers, parts.request_service, parts.pipes) == (None, None, None)
        assert parts.certificates is None
        assert parts.jobs is not None  # in a temporary folder
        work = parts.work(BalancerSettings())
        for each in work:
            each.close()
    assert len(work) == 5  # the fleet, events, the store's writer, the diary, jobs


async def test_with_a_store_answers_outlive_the_balancer(tmp_path: Path) -> None:
    settings = BalancerSettings.model_validate({"state": f"sqlite:///{tmp_path}/state.db"})
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(settings, until_the_end)
        assert parts.request_service is not None
        assert parts.store_statuses() == {"history": StoreStatus(), "requests": StoreStatus()}
        assert parts.issues() == ()
        change = asyncio.create_task(parts.desired_state.put(DesiredState(), expected=None))
        await asyncio.sleep(0)
        parts.persistence.writer.health.went_away("gone")
        status = parts.store_status()
        assert status == StoreStatus(status.away_since, "gone", num_pending=1)
        assert [issue.code for issue in parts.issues()] == ["store_away"]
        await change
        assert parts.issues() == ()


async def test_a_part_that_cannot_be_made_closes_those_before_it(tmp_path: Path) -> None:
    settings = BalancerSettings(admin_key_file=tmp_path / "none")
    with pytest.raises(StartupError, match="--admin-key-file: cannot read"):
        async with AsyncExitStack() as until_the_end:
            await assemble(settings, until_the_end)


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
        answer = ResponseAnswer(
            RequestId(str(number)),
            store,
            wanted,
            previous,
            served="m",
            service_tier="default",
            created_at=1,
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
    conversations.put("m", thread, 0.0, owner="ana@1")
    assert keeper.num_waiting == 1
    nothing = BalancerSettings.model_validate({"responses_limit": 0})
    assert open_conversations(nothing, persistence)[1] is None
    await persistence.close()


async def test_the_metrics_read_the_parts() -> None:
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(BalancerSettings(), until_the_end)
        collect_numbers(parts)
        measure_loop_delay(parts.metrics, until_the_end)
        shown, _ = parts.metrics.render("")
    names = {line.split()[0] for line in shown.decode().splitlines() if line[0] != "#"}
    assert names >= {
        *("arriero_stored_responses", "arriero_stored_responses_unwritten"),
        *("arriero_kept_requests", "arriero_access_keys"),
        *("arriero_sessions", "arriero_batch_lines_running", "arriero_store_away"),
        *("arriero_event_loop_delay_seconds_count", "arriero_queue_depth"),
        *("arriero_stored_response_bytes", "arriero_log_lines_dropped", "arriero_usage_rows"),
        *("arriero_limited_callers", "arriero_client_notices", "arriero_store_pending"),
        *("arriero_spans_waiting", "arriero_media_links", "arriero_request_body_bytes"),
    }
