"""The dashboard in a real browser, over real daemons."""

import asyncio
import json
import re
from typing import Any

import pytest
from playwright.async_api import Locator, Route, expect

from integration_tests.corpus import UNENDING, generate, plain_cases
from integration_tests.daemons import Fleet
from integration_tests.dashboard import Dashboard
from integration_tests.nobody_else_notices.bystander import slowed

WHOLE = re.compile("^(stop|length)$")
"""The finish reasons of an answer that was not cut short."""

SOME = r"[1-9]\d*%"

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first test may have to install the browser
]


async def test_agents_appear_and_leave(bare_fleet: Fleet, dashboard: Dashboard) -> None:
    await dashboard.open(bare_fleet)
    address = bare_fleet.balancer.ready["management"]
    await expect(dashboard.part("agent-command")).to_contain_text(f"--balancer ws://{address} ")
    await expect(dashboard.part("no-agents")).to_be_visible()

    await bare_fleet.start_agent(name="north")
    leaver = await bare_fleet.start_agent(name="<img src=x onerror=alert(1)>", slots=2)
    await expect(dashboard.part("agent")).to_have_count(2)
    await expect(dashboard.part("no-agents")).to_be_hidden()
    await expect(dashboard.part("agent").first).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(dashboard.part("agent").last).to_contain_text("arriero-demo")
    await expect(dashboard.part("agent").last.locator(".slot")).to_have_count(4)
    await expect(dashboard.part("total-slots")).to_have_text("0 / 6")

    assert await leaver.terminate() == 0
    await expect(dashboard.part("agent")).to_have_count(1)
    await expect(dashboard.part("total-slots")).to_have_text("0 / 4")
    assert dashboard.complaints == []


async def test_the_plot_moves_while_tokens_stream(long_fleet: Fleet, dashboard: Dashboard) -> None:
    await dashboard.page.emulate_media(reduced_motion="no-preference")
    await dashboard.open(long_fleet)
    area = dashboard.part("throughput-plot").get_by_test_id("plot-area")
    await expect(dashboard.part("total-rate")).to_have_text("0")

    async with slowed(long_fleet):
        running = asyncio.create_task(generate(long_fleet.http, long_fleet.inference, UNENDING))
        await expect(dashboard.part("total-rate")).not_to_have_text("0")
        await expect(dashboard.part("agent").locator(".slot.busy")).to_have_count(1)
        shapes = [await shape_with_height(area)]
        for _ in range(2):
            await expect(area).not_to_have_attribute("d", shapes[-1])
            shapes.append(await shape_with_height(area))
        assert len(set(shapes)) == 3

        running.cancel()
        await expect(dashboard.part("total-rate")).to_have_text("0")
    assert dashboard.complaints == []


async def shape_with_height(area: Locator) -> str:
    """The area's path, once it rises above the axis."""
    await area.page.wait_for_function(
        "path => path.getBBox().height > 5", arg=await area.element_handle()
    )
    return await area.get_attribute("d") or ""


async def test_the_playground_streams(shared_fleet: Fleet, dashboard: Dashboard) -> None:
    await dashboard.open(shared_fleet, "playground")
    await dashboard.part("temperature").fill("0")
    await dashboard.part("max-tokens").fill("600")
    longest = max(plain_cases(), key=lambda case: len(case.answer))
    await dashboard.page.evaluate(RECORD_GROWTH)
    await shared_fleet.hold()
    await dashboard.ask(longest.body["messages"][0]["content"])
    for num_steps in range(1, 5):
        await shared_fleet.agents[0].pace.hand_out(5)
        await dashboard.page.wait_for_function(
            "num => new Set(window.lengths).size >= num", arg=num_steps
        )
    await shared_fleet.let_go()

    answer = await dashboard.settle("stop")
    await expect(answer.get_by_test_id("answer")).to_have_text(longest.answer)
    await expect(answer.get_by_test_id("answer-meta")).to_contain_text("tokens/s")
    lengths = await dashboard.page.evaluate("window.lengths")
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(longest.answer)
    assert dashboard.complaints == []


RECORD_GROWTH = """() => {
    window.lengths = [];
    const chat = document.querySelector('[data-testid="chat"]');
    new MutationObserver(() => {
        const answers = chat.querySelectorAll('[data-testid="answer"]');
        window.lengths.push(answers[answers.length - 1].textContent.length);
    }).observe(chat, {childList: true, subtree: true, characterData: true});
}"""


async def test_a_conversation_goes_on(shared_fleet: Fleet, dashboard: Dashboard) -> None:
    await dashboard.open(shared_fleet, "playground")
    sent: list[Any] = []
    dashboard.page.on(
        "request",
        lambda request: sent.append(request.post_data_json) if request.method == "POST" else None,
    )
    await dashboard.part("temperature").fill("0")
    await dashboard.ask("What is a slot?")
    first = await (await dashboard.settle(WHOLE)).get_by_test_id("answer").text_content()
    await dashboard.ask("And a batch?")
    await expect(dashboard.part("bubble-assistant")).to_have_count(2)
    await dashboard.settle(WHOLE)
    assert sent[1]["messages"] == [
        {"role": "user", "content": "What is a slot?"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "And a batch?"},
    ]
    await dashboard.part("new-chat").click()
    await expect(dashboard.part("bubble-user")).to_have_count(0)
    assert dashboard.complaints == []


async def test_the_cache_and_the_speed_of_an_engine(
    bare_fleet: Fleet, dashboard: Dashboard
) -> None:
    await bare_fleet.start_agent()
    await dashboard.open(bare_fleet)
    card = dashboard.part("agent")
    speed = card.get_by_test_id("engine-speed")
    await expect(speed).to_have_text("nothing decoded yet", use_inner_text=True)
    await expect(dashboard.part("agents-note")).to_have_text("1 agent, 1 model")
    await dashboard.turn_to("Playground")
    for _ in range(2):
        await dashboard.ask("What is a slot?")
        await dashboard.settle(WHOLE)
        await dashboard.part("new-chat").click()

    await dashboard.turn_to("Fleet")
    await expect(speed).to_contain_text("tokens/s · 1.0 at once")
    cached = re.compile(rf"^KV cache 0% used · <?{SOME} cached$")
    await expect(card.get_by_test_id("cells-note")).to_have_text(cached)
    await expect(card.get_by_test_id("cells").locator(".kept")).not_to_have_attribute("width", "0%")
    cached = re.compile(f"^1 agent, 1 model, {SOME} of prompts cached$")
    await expect(dashboard.part("agents-note")).to_have_text(cached)
    assert dashboard.complaints == []


async def test_stop_keeps_the_text_and_frees_the_slot(
    small_fleet: Fleet, dashboard: Dashboard
) -> None:
    await dashboard.open(small_fleet, "playground")
    await dashboard.page.route("**/api/v1/generate", without_end)
    await dashboard.page.evaluate(STOP_AFTER, 40)
    await dashboard.ask("Tell me everything.")

    answer = await dashboard.settle("stopped")
    text = await answer.get_by_test_id("answer").inner_text()
    assert len(text) >= 40
    await small_fleet.until_idle()
    await expect(dashboard.part("total-slots")).to_have_text("0 / 2")
    await expect(dashboard.part("send")).to_be_visible()
    assert await answer.get_by_test_id("answer").inner_text() == text
    assert dashboard.complaints == []


UNENDING_FIELDS = {"ignore_eos": True, "n_discard": 64}


async def without_end(route: Route) -> None:
    """Changes the page's request so that the model cannot end the answer by itself."""
    await route.continue_(post_data=json.dumps(route.request.post_data_json | UNENDING_FIELDS))


STOP_AFTER = """length => {
    const stop = document.querySelector('[data-testid="stop"]');
    const chat = document.querySelector('[data-testid="chat"]');
    const observer = new MutationObserver(() => {
        const answer = chat.querySelector('[data-testid="answer"]');
        if (answer.textContent.length < length) return;
        observer.disconnect();
        stop.click();
    });
    observer.observe(chat, {childList: true, subtree: true, characterData: true});
}"""


async def test_a_request_is_cancelled_from_the_table(
    long_fleet: Fleet, dashboard: Dashboard
) -> None:
    await dashboard.open(long_fleet, "requests")
    await expect(dashboard.part("no-requests")).to_be_visible()
    running = asyncio.create_task(generate(long_fleet.http, long_fleet.inference, UNENDING))
    row = dashboard.part("requests").get_by_test_id("request")
    await expect(row).to_contain_text("answering")
    await dashboard.part("request-search").fill("no such request")
    await expect(row).to_have_count(0)
    await dashboard.part("request-search").fill("answering")
    await row.get_by_test_id("cancel").click()
    assert (await running).end["finish_reason"] == "cancelled"
    await expect(row).to_have_count(0)
    assert dashboard.complaints == []


async def test_an_error_is_readable_and_can_be_tried_again(
    fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    await fresh_fleet.start_balancer(max_buffered_requests=0)
    await dashboard.open(fresh_fleet, "playground")
    await dashboard.ask("Is anybody there?")
    answer = await dashboard.settle("error")
    await expect(answer.get_by_test_id("answer-meta")).to_have_text("queue_full")
    await expect(answer.get_by_test_id("answer-error")).not_to_be_empty()

    await fresh_fleet.start_agent()
    await answer.get_by_role("button", name="Try again").click()
    await dashboard.settle(WHOLE)
    await expect(dashboard.part("bubble-user")).to_have_count(1)


async def test_a_lost_balancer_is_shown_and_dialled_again(
    fresh_fleet: Fleet, dashboard: Dashboard
) -> None:
    balancer = await fresh_fleet.start_balancer()
    await fresh_fleet.start_agent()
    await dashboard.open(fresh_fleet)
    await expect(dashboard.part("agent")).to_have_count(1)

    assert await balancer.terminate() == 0
    await expect(dashboard.part("connection")).to_have_attribute("data-state", "lost")
    await expect(dashboard.part("banner")).to_contain_text("Lost the balancer")
    await expect(dashboard.part("agent")).to_have_count(1)

    await fresh_fleet.restart_balancer()
    await expect(dashboard.part("connection")).to_have_attribute("data-state", "live")
    await expect(dashboard.part("banner")).to_be_hidden()
    await expect(dashboard.part("agent")).to_have_count(1)
