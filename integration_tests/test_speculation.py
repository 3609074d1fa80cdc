"""Speculative decoding: the same answers in fewer steps, through both daemons."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.engine.pace import STEPS
from bench.small_models import write
from demo.conversations import DRAFT
from integration_tests.corpus import Case, cases, generate, plain_cases
from integration_tests.daemons import Fleet, until
from integration_tests.shared_fleets import until_empty

pytestmark = pytest.mark.asyncio(loop_scope="session")

REPEATING = ("tools-0", "dialogs-0", "json-0", "long-04")
"""Cases whose answers repeat themselves, the question or an earlier answer."""


def repeating() -> list[Case]:
    return [case for case in cases() if case.id.startswith(REPEATING)][::4]


def asked_again(case: Case) -> dict[str, Any]:
    """A conversation in which the question was answered before."""
    question = case.body["messages"]
    answered = [*question, {"role": "assistant", "content": case.answer}]
    return case.body | {"messages": [*answered, *question]}


async def drafts(fleet: Fleet, num_tokens: int) -> tuple[int, int]:
    """How many tokens were drafted and how many accepted, once `num_tokens` were given out."""
    found: list[dict[str, Any]] = []

    async def told() -> bool:
        (agent,) = await fleet.view("agents")
        found[:] = [agent["statistics"] or {"completion_tokens_total": 0}]
        return bool(found[0]["completion_tokens_total"] == num_tokens)

    await until(told)
    return found[0]["drafted_tokens_total"], found[0]["accepted_tokens_total"]


async def test_every_text_is_the_one_without_guesses(bare_fleet: Fleet) -> None:
    await bare_fleet.start_agent(slots=8, speculate=6)
    asked = repeating()

    answers = await asyncio.gather(
        *(generate(bare_fleet.http, bare_fleet.inference, case.body) for case in asked)
    )

    assert [answer.text for answer in answers] == [case.answer for case in asked]
    assert [answer.calls for answer in answers] == [case.calls for case in asked]


async def test_so_it_is_in_a_cache_that_holds_hardly_anybody(bare_fleet: Fleet) -> None:
    """A draft model guesses, too."""
    await bare_fleet.start_agent(slots=4, context_size=512, kv_cells=512, draft_model=DRAFT)
    asked = repeating()[::2]

    answers = await asyncio.gather(
        *(generate(bare_fleet.http, bare_fleet.inference, case.body) for case in asked)
    )

    assert [answer.text for answer in answers] == [case.answer for case in asked]
    (agent,) = await bare_fleet.view("agents")
    assert agent["model"]["draft_model"] == DRAFT.stem


async def test_what_was_said_before_takes_fewer_steps_and_is_counted(bare_fleet: Fleet) -> None:
    await bare_fleet.start_agent(slots=1, speculate=6, name="box", env={STEPS: "30"})
    case = max(plain_cases(), key=lambda case: len(case.answer))

    answer = await generate(bare_fleet.http, bare_fleet.inference, asked_again(case))

    assert answer.text == case.answer
    usage = answer.end["usage"]
    drafted, accepted = await drafts(bare_fleet, usage["completion_tokens"])
    # How much is drafted follows from measured times. At that pace all steps take the same, which
    # makes drafts pay. What they save is exact: a step each. A step more gives the end, which is
    # no text.
    assert 0 < accepted <= drafted
    num_events = sum(event["event"] == "token" for event in answer.events)
    assert num_events <= usage["completion_tokens"] + 1 - accepted
    async with bare_fleet.http.get(f"{bare_fleet.management}/metrics") as response:
        samples = await response.text()
    counter = 'arriero_agent_drafted_tokens_total{agent="box",outcome="%s"} %d.0'
    assert counter % ("accepted", accepted) in samples
    assert counter % ("rejected", drafted - accepted) in samples


async def test_limits_hold_within_a_guess(bare_fleet: Fleet) -> None:
    await bare_fleet.start_agent(slots=2, speculate=6)
    case = max(plain_cases(), key=lambda case: len(case.answer))
    words = case.answer.split()
    stop = " ".join(words[len(words) // 2 :][:3])
    again = asked_again(case)

    limited, stopped = await asyncio.gather(
        generate(bare_fleet.http, bare_fleet.inference, again | {"max_tokens": 50}),
        generate(bare_fleet.http, bare_fleet.inference, again | {"stop": [stop]}),
    )

    assert limited.end["finish_reason"] == "length"
    assert limited.end["usage"]["completion_tokens"] == 50
    assert case.answer.startswith(limited.text)
    assert stopped.end["finish_reason"] == "stop"
    assert stopped.text == case.answer[: case.answer.index(stop)]
    assert stopped.end["timings"]["decode_tokens_per_second"] > 0


async def test_a_hybrid_model_takes_back_what_its_own_layers_drafted_in_vain(
    bare_fleet: Fleet, tmp_path: Path
) -> None:
    """Both answers have the same text; the second one begins where the first one stood."""
    model = write("qwen35", tmp_path / "model.gguf", has_mtp=True)
    answers = []
    for speculate in (0, 4):
        agent = await bare_fleet.start_agent(
            model=model, slots=1, speculate=speculate, env={STEPS: "60"}
        )
        text = "slot queue agent model"
        for _ in range(2):
            asked = {"prompt": text, "max_tokens": 150, "temperature": 0}
            answer = await generate(bare_fleet.http, bare_fleet.inference, asked)
            answers.append((answer.text, answer.end["usage"]["cached_tokens"]))
            text += answer.text + " slot queue agent model"
        if speculate:
            drafted, accepted = await drafts(bare_fleet, 300)
            assert 0 < accepted < drafted
            (view,) = await bare_fleet.view("agents")
            assert view["model"]["draft_model"] == "model (MTP)"
        await agent.terminate()
        await until_empty(bare_fleet)
    assert answers[:2] == answers[2:]
    assert answers[1][1] > 150


async def test_without_guesses_nothing_is_drafted(bare_fleet: Fleet) -> None:
    await bare_fleet.start_agent(slots=1)
    case = plain_cases()[0]
    answer = await generate(bare_fleet.http, bare_fleet.inference, asked_again(case))
    assert await drafts(bare_fleet, answer.end["usage"]["completion_tokens"]) == (0, 0)
