"""Native code that takes the engine's process down: the agent is back, and answers go on."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from integration_tests.corpus import ENDLESS, LONG_CONTEXT, generate, plain_cases
from integration_tests.daemons import MODEL, Daemon, Fleet, until
from integration_tests.shared_fleets import SharedFleets

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_SILENCE = {"heartbeat_interval": "1s", "heartbeat_timeout": "600s"}
"""Longer than any test: a crash is noticed by what breaks."""

NUM_TOKENS = 100

Agent = dict[str, Any]


async def only_agent(fleet: Fleet) -> Agent:
    """The one agent there is; between two connections of it there is none."""
    seen: list[Agent] = []

    async def is_there() -> bool:
        seen[:] = await fleet.view("agents")
        return len(seen) == 1

    await until(is_there)
    return seen[0]


async def until_agent(fleet: Fleet, *, slots: int, issue: str = "") -> Agent:
    """Waits until the agent has so many slots and exactly one issue with this text, or none."""
    seen: list[Agent] = []

    async def is_so() -> bool:
        seen[:] = [await only_agent(fleet)]
        issues = [each["message"] for each in seen[0]["issues"]]
        is_right = len(issues) == 1 and issue in issues[0] if issue else not issues
        return is_right and seen[0]["slots"]["total"] == slots

    try:
        await until(is_so)
    except AssertionError as error:
        raise AssertionError(f"the agent was last seen as {seen}") from error
    return seen[0]


async def answers_correctly(fleet: Fleet) -> None:
    case = plain_cases()[0]
    answer = await generate(fleet.http, fleet.inference, case.body)
    assert answer.text == case.answer


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until_gone(pid: int) -> None:
    async def is_gone() -> bool:
        return not is_alive(pid)

    await until(is_gone)


@pytest_asyncio.fixture(loop_scope="session")
async def patient(fleets: SharedFleets) -> AsyncIterator[Fleet]:
    async with fleets.without_agents(**NO_SILENCE) as fleet:
        yield fleet


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL])
async def test_answers_go_on_when_the_agent_is_back(patient: Fleet, number: signal.Signals) -> None:
    agent = await patient.start_agent(slots=2, context_size=LONG_CONTEXT)
    before = await only_agent(patient)
    await patient.hold()
    running = [
        asyncio.create_task(
            generate(patient.http, patient.inference, ENDLESS | {"max_tokens": NUM_TOKENS})
        )
        for _ in range(2)
    ]
    await patient.until_streaming(2)
    queued = asyncio.create_task(generate(patient.http, patient.inference, plain_cases()[0].body))
    await patient.until_num_requests(1, "queued")

    agent.pace.keep_out()
    agent.signal_engine(number)
    during = await until_agent(patient, slots=0, issue=f"was ended by {number.name}")
    assert (during["id"], during["name"]) == (before["id"], before["name"])
    assert during["issues"][0]["code"] == "engine_crashed"
    assert "starts again after a pause of 500ms" in during["issues"][0]["message"]

    await agent.pace.let_go()
    agent.pace.let_in()
    after = await until_agent(patient, slots=2, issue="it was started again")
    assert after["id"] == before["id"]
    fit = {"fit": before["model"]["fit"]}  # it tells the memory that was free
    assert after["model"] | fit == before["model"]
    for answer in await asyncio.gather(*running):
        assert answer.end["usage"]["completion_tokens"] == NUM_TOKENS
        assert answer.end["timings"]["moves"] == 1
    assert (await queued).text == plain_cases()[0].answer
    assert agent.stdout == [f"ready agent name={before['name']} slots=2 model=arriero-demo"]
    assert await agent.terminate() == 0


async def test_a_reload_finishes_what_runs_and_loads_the_model_anew(patient: Fleet) -> None:
    agent = await patient.start_agent(slots=2, context_size=LONG_CONTEXT)
    before = await only_agent(patient)
    [pid] = agent.engine_pids
    await patient.hold()
    body = ENDLESS | {"max_tokens": NUM_TOKENS}
    running = asyncio.create_task(generate(patient.http, patient.inference, body))
    await patient.until_streaming(1)

    agent.pace.keep_out()
    await patient.steer(before["id"], "reload")
    during = await until_agent(patient, slots=0)
    assert (during["id"], during["state"]) == (before["id"], "loading")
    assert is_alive(pid), "it finishes what runs"
    queued = asyncio.create_task(generate(patient.http, patient.inference, plain_cases()[0].body))
    await patient.until_num_requests(1, "queued")

    await agent.pace.let_go()
    answer = await running
    assert answer.end["usage"]["completion_tokens"] == NUM_TOKENS
    assert answer.end["timings"]["moves"] == 0
    await until_gone(pid)
    agent.pace.let_in()
    after = await until_agent(patient, slots=2)
    assert after["id"] == before["id"]
    assert (await queued).text == plain_cases()[0].answer
    assert await agent.terminate() == 0


async def until_issue(fleet: Fleet, code: str, *, slots: int) -> Agent:
    """Waits until the agent has so many slots and one issue of this code."""
    seen: list[Agent] = []

    async def is_so() -> bool:
        seen[:] = [await only_agent(fleet)]
        codes = [each["code"] for each in seen[0]["issues"]]
        return codes == [code] and seen[0]["slots"]["total"] == slots

    await until(is_so)
    return seen[0]


async def test_a_step_that_hangs_gets_nothing_new_and_ends_the_engine(patient: Fleet) -> None:
    agent = await patient.start_agent(slots=2, context_size=LONG_CONTEXT, step_timeout="8s")
    body = ENDLESS | {"max_tokens": NUM_TOKENS}
    await agent.pace.hand_out(3)
    running = asyncio.create_task(generate(patient.http, patient.inference, body))
    await patient.until_streaming(1)
    await agent.pace.hang()
    await until_issue(patient, "engine_stalled", slots=0)
    queued = asyncio.create_task(generate(patient.http, patient.inference, plain_cases()[0].body))
    await patient.until_num_requests(1, "queued")

    after = await until_agent(patient, slots=2, issue="it was started again")
    assert after["issues"][0]["code"] == "engine_stalled"
    assert "no step of the engine ended within 8s" in after["issues"][0]["message"]
    answer = await running
    assert answer.end["usage"]["completion_tokens"] == NUM_TOKENS
    assert answer.end["timings"]["moves"] == 1
    assert (await queued).text == plain_cases()[0].answer
    assert len(agent.engine_pids) == 2


async def test_a_long_step_that_ends_after_all_ends_the_issue(patient: Fleet) -> None:
    agent = await patient.start_agent(slots=1, context_size=LONG_CONTEXT, step_timeout="60s")
    await agent.pace.slow(1 / 12)
    running = asyncio.create_task(generate(patient.http, patient.inference, ENDLESS))
    await until_issue(patient, "engine_stalled", slots=0)
    await agent.pace.slow(None)
    await until_agent(patient, slots=1)
    running.cancel()
    await answers_correctly(patient)
    assert len(agent.engine_pids) == 1


async def test_an_engine_process_that_stands_still_starts_again_and_a_held_one_does_not(
    patient: Fleet,
) -> None:
    held = await patient.start_agent(slots=1, context_size=LONG_CONTEXT, step_timeout="2s")
    await held.pace.hand_out(2)
    running = asyncio.create_task(generate(patient.http, patient.inference, ENDLESS))
    await patient.until_streaming(1)
    agent = await patient.start_agent(slots=1, name="stands-still", step_timeout="2s")
    agent.signal_engine(signal.SIGSTOP)

    async def is_back() -> bool:
        views = {each["name"]: each for each in await patient.view("agents")}
        view = views.get("stands-still", {"issues": [], "slots": {"total": 0}})
        return [each["code"] for each in view["issues"]] == ["engine_stalled"] and (
            view["slots"]["total"] == 1
        )

    await until(is_back)
    assert (len(agent.engine_pids), len(held.engine_pids)) == (2, 1)
    views = await patient.view("agents")
    assert [each["issues"] for each in views if each["name"] != "stands-still"] == [[]]
    await answers_correctly(patient)
    running.cancel()
    await held.pace.let_go()


async def test_the_issue_goes_when_the_engine_has_held_out(patient: Fleet) -> None:
    agent = await patient.start_agent(slots=1)
    agent.signal_engine(signal.SIGABRT)
    await until_agent(patient, slots=1, issue="it was started again")
    await until_agent(patient, slots=1)
    await answers_correctly(patient)
    assert len(agent.engine_pids) == 2


async def test_a_crash_after_a_crash_waits_longer(patient: Fleet) -> None:
    agent = await patient.start_agent(slots=1)
    agent.pace.keep_out()
    agent.signal_engine(signal.SIGABRT)
    await until_agent(patient, slots=0, issue="pause of 500ms")
    agent.pace.let_in()
    await until_agent(patient, slots=1, issue="was started again")
    agent.pace.keep_out()
    agent.signal_engine(signal.SIGSEGV)
    await until_agent(patient, slots=0, issue="SIGSEGV (2 times in a row)")
    await until_agent(patient, slots=0, issue="pause of 1s")
    agent.pace.let_in()
    await until_agent(patient, slots=1, issue="was started again")
    await answers_correctly(patient)


async def test_a_crash_while_loading_is_shown_and_tried_again(patient: Fleet) -> None:
    agent = await patient.launch_agent(slots=1, is_kept_out=True)
    await agent.until_line(agent.stderr, "the engine process starts")
    agent.signal_engine(signal.SIGKILL)
    await until_agent(patient, slots=0, issue="was ended by SIGKILL")
    agent.pace.let_in()
    await agent.until_ready()
    await answers_correctly(patient)


async def test_a_model_that_breaks_between_two_starts(patient: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(MODEL.read_bytes())
    agent = await patient.start_agent(slots=1, model=path)
    whole = path.rename(tmp_path / "whole.gguf")
    agent.signal_engine(signal.SIGABRT)
    seen = await until_agent(patient, slots=0, issue=str(path))
    assert "ended with exit code 1" in seen["issues"][0]["message"]
    whole.rename(path)
    await until_agent(patient, slots=1, issue="was started again")
    assert agent.process.returncode is None


async def test_the_second_of_two_agents_takes_what_had_delivered_nothing(patient: Fleet) -> None:
    crashing = await patient.start_agent(slots=1)
    await crashing.pace.hold()
    waiting = asyncio.create_task(generate(patient.http, patient.inference, plain_cases()[0].body))
    await patient.until_num_requests(1, "assigned")
    await patient.start_agent(slots=1)
    crashing.signal_engine(signal.SIGKILL)
    answer = await waiting
    assert (answer.text, answer.end["agent"]) == (plain_cases()[0].answer, "agent-2")


@pytest_asyncio.fixture(loop_scope="session")
async def impatient(fleets: SharedFleets) -> AsyncIterator[Fleet]:
    """Requests that wait for another agent end soon."""
    async with fleets.without_agents(**NO_SILENCE, buffered_request_timeout="200ms") as fleet:
        yield fleet


class TestTheEnd:
    async def streaming(self, fleet: Fleet, **body: object) -> tuple[Daemon, asyncio.Task[Any]]:
        """Its engine is held: no answer comes to its end. Draining takes as long as a test."""
        agent = await fleet.start_agent(slots=1, context_size=LONG_CONTEXT, drain_timeout="600s")
        await fleet.hold()
        task = asyncio.create_task(generate(fleet.http, fleet.inference, ENDLESS | body))
        await fleet.until_streaming(1)
        return agent, task

    async def test_a_supervisor_that_is_killed_takes_the_engine_with_it(
        self, impatient: Fleet
    ) -> None:
        agent, running = await self.streaming(impatient)
        [pid] = agent.engine_pids
        agent.signal(signal.SIGKILL)
        answer = await running
        assert answer.end["error"]["code"] == "agent_lost"
        await until_gone(pid)

    async def test_a_second_signal_takes_the_engine_with_it(self, impatient: Fleet) -> None:
        agent, running = await self.streaming(impatient)
        [pid] = agent.engine_pids
        agent.signal(signal.SIGTERM)
        await agent.until_line(agent.stderr, "stopping: SIGTERM")
        agent.signal(signal.SIGTERM)
        assert await agent.exit_code() == 143
        answer = await running
        assert answer.end["error"]["code"] == "agent_lost"
        await until_gone(pid)

    async def test_a_signal_to_every_process_counts_once(self, impatient: Fleet) -> None:
        agent, running = await self.streaming(impatient, max_tokens=NUM_TOKENS)
        agent.signal_all(signal.SIGTERM)
        await agent.until_line(agent.stderr, "stopping: SIGTERM")
        await agent.pace.let_go()
        assert (await running).end["finish_reason"] == "length"
        assert await agent.exit_code() == 0

    async def test_during_a_pause(self, impatient: Fleet) -> None:
        agent, running = await self.streaming(impatient)
        agent.signal_engine(signal.SIGABRT)
        await running
        await agent.until_line(agent.stderr, "starts again after a pause")
        assert await agent.terminate() == 0
        assert await impatient.view("agents") == []

    async def test_a_crash_while_draining(self, impatient: Fleet) -> None:
        agent, running = await self.streaming(impatient)
        agent.signal(signal.SIGTERM)
        await agent.until_line(agent.stderr, "stopping: the supervisor asks for it")
        agent.signal_engine(signal.SIGABRT)
        answer = await running
        assert answer.end["error"]["code"] == "agent_lost"
        assert await agent.exit_code() == 128 + signal.SIGABRT
        assert "while stopping, the engine process was ended by SIGABRT" in agent.stderr[-1]
