"""Answers that outlive their balancer: it is killed in their midst, and the next one goes on."""

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from integration_tests.corpus import plain_cases
from integration_tests.daemons import Fleet, until
from integration_tests.folding import events_of

CASE = max(plain_cases(), key=lambda case: len(case.answer))
QUESTION = CASE.body["messages"]
RESPONSE = {"input": QUESTION, "temperature": 0, "background": True}
CHAT = {"messages": QUESTION, "temperature": 0, "stream": True}
KEY = {"Idempotency-Key": "one-and-the-same"}


async def started(fleet: Fleet, state: str) -> None:
    """A balancer at the address of the one before, if there was one."""
    addresses = {}
    if hasattr(fleet, "balancer"):
        ready = fleet.balancer.ready
        addresses = {
            "inference_addr": ready["inference"],
            "management_addr": ready["management"],
        }
    await fleet.start_balancer(state=state, **addresses)


async def chunks(fleet: Fleet, body: Any, *, most: int = 2**31) -> list[Any]:
    """Of a chat completion under the key: all that come, or the first ones."""
    lines: list[str] = []
    url = f"{fleet.inference}/v1/chat/completions"
    async with fleet.http.post(url, json=body, headers=KEY) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            lines.append(line.decode())
            if len(lines) >= most and not line.strip():
                break
    return events_of(lines)


async def posted(fleet: Fleet, body: Any) -> Any:
    async with fleet.http.post(f"{fleet.inference}/v1/responses", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def read(fleet: Fleet, id: str, after: int, until_text: int = 0) -> list[Any]:
    """Events of a response after a number; not all, if `until_text` characters are enough."""
    lines: list[str] = []
    num = 0
    url = f"{fleet.inference}/v1/responses/{id}?stream=true&starting_after={after}"
    async with fleet.http.get(url) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            lines.append(line.decode())
            num += b"output_text.delta" in line and line.startswith(b"data:")
            if until_text and num >= until_text and not line.strip():
                break
    return [each for each in events_of(lines) if isinstance(each, dict)]


async def until_saved(database: Path, num: int) -> None:
    """Waits until so many requests are in the store: clients are answered before they are."""

    async def are_saved() -> bool:
        with closing(sqlite3.connect(database)) as connection:
            found = connection.execute("SELECT count(*) FROM kept_requests").fetchone()
        return bool(found == (num,))

    await until(are_saved)


def text_of(events: list[Any]) -> str:
    deltas = [each for each in events if each["type"] == "response.output_text.delta"]
    return "".join(each["delta"] for each in deltas)


async def test_answers_go_on_when_their_balancer_was_killed(fleet: Fleet, tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    await started(fleet, state)
    agent = await fleet.start_agent()
    await agent.pace.hold()
    begun = await posted(fleet, RESPONSE)
    chatting = asyncio.create_task(chunks(fleet, CHAT, most=20))
    await fleet.until_in_engines(2)
    await agent.pace.hand_out(60)
    chat = await agent.pace.step_until(chatting)
    await until_saved(tmp_path / "state.db", 2)
    first = await agent.pace.step_until(read(fleet, begun["id"], -1, until_text=40))
    assert not first[-1]["type"].startswith("response.completed"), "it was over before the kill"
    fleet.balancer.signal(signal.SIGKILL)
    await fleet.balancer.exit_code()
    await agent.pace.let_go()
    await started(fleet, state)

    rest = await read(fleet, begun["id"], first[-1]["sequence_number"])
    numbers = [each["sequence_number"] for each in [*first, *rest]]
    assert numbers == list(range(len(numbers)))
    assert text_of(first) + text_of(rest) == CASE.answer
    assert rest[-1]["type"] == "response.completed"
    again = await chunks(fleet, CHAT)
    assert {(each["id"], each["created"]) for each in [*chat, *again]} == {
        (chat[0]["id"], chat[0]["created"])
    }
    text = "".join(each["choices"][0]["delta"].get("content") or "" for each in again)
    assert text == CASE.answer

    # What has ended is there for the next one, too.
    fleet.balancer.signal(signal.SIGKILL)
    await fleet.balancer.exit_code()
    await started(fleet, state)
    assert text_of(await read(fleet, begun["id"], -1)) == CASE.answer
    assert await chunks(fleet, CHAT) == again
