"""The dashboard's pages in a real browser, over a management port of made-up agents."""

import ast
import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from playwright.async_api import FloatRect, Locator, expect

from integration_tests.daemons import DEADLINE
from integration_tests.dashboard import Dashboard
from integration_tests.fake_management import (
    DOWNLOAD,
    INFERENCE_PORT,
    ISSUE,
    MODEL,
    SECRET,
    STATISTICS,
    FakeManagement,
    access_key,
    agent,
    batch,
    device,
    history,
    listed,
    log_line,
    request,
)
from integration_tests.installed import node_clients

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first test may have to install the browser
]

COLOURS = {"runOnly": ["color-contrast"]}
"""What axe looks for where nothing but colours is different."""
PAGES = {
    "fleet": "fleet",
    "agents/agent-1": "agents",
    "models": "models",
    "models/qwen": "model",
    "requests": "requests",
    "requests?state=ended": "requests",
    "batches": "batches",
    "usage": "usage",
    "keys": "keys",
    "playground": "playground",
}
"""Addresses, and the pages that they show."""
WISHED = {
    "name": "qwen",
    "source": "hf://org/repo:Q4_K_M",
    "aliases": ["gpt-4o-mini"],
    "agents": {"labels": {"gpu": "yes"}, "replicas": 2},
    "slots": 4,
    "preload": True,
}


@pytest_asyncio.fixture(loop_scope="session")
async def management() -> AsyncIterator[FakeManagement]:
    fake = FakeManagement()
    server = TestServer(fake.app(), host="127.0.0.1", shutdown_timeout=1)
    await server.start_server()
    fake.management = str(server.make_url("")).rstrip("/")
    yield fake
    await server.close()


async def test_two_hundred_agents_on_one_page(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(number) for number in range(200)]
    management.agents[7]["issues"] = [ISSUE]
    await dashboard.open(management)
    cards = dashboard.part("agents").get_by_test_id("agent")
    await expect(cards).to_have_count(200)
    await expect(cards.first).to_contain_text("host-000")

    await dashboard.part("agent-sort").select_option("issues")
    await expect(cards.first).to_contain_text("host-007")
    await dashboard.part("agent-search").fill("north host-01")
    await expect(cards).to_have_count(5)
    await dashboard.part("agent-search").fill("nobody")
    await expect(cards).to_have_count(0)
    await dashboard.part("agent-search").fill("")
    await expect(cards).to_have_count(200)

    # A change of one agent draws one card; rates alone may change on the others.
    await dashboard.page.evaluate(COUNT_CARDS_DRAWN)
    change = {"id": "agent-3", "slots": {"total": 4, "busy": 1}, "state": "draining"}
    await management.tell("delta", {**management.totals(), "agents": [change]})
    await expect(dashboard.page.locator("[data-agent=agent-3]")).to_contain_text("draining")
    assert await dashboard.page.evaluate("[...window.drawn]") == ["agent-3"]
    assert dashboard.complaints == []


COUNT_CARDS_DRAWN = """() => {
    window.drawn = new Set();
    const look = (changes) => changes.forEach(({target}) => {
        const node = target.nodeType === 1 ? target : target.parentElement;
        if (node && !node.closest(".agent-rate")) {
            window.drawn.add(node.closest(".agent")?.dataset.agent ?? "the list");
        }
    });
    new MutationObserver(look).observe(document.getElementById("agents"),
        {childList: true, subtree: true, characterData: true, attributes: true});
}"""


async def test_an_agent_is_shown_and_drained(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    work = {"model": "qwen", "phase": "fetching", "progress": 0.5, "memory_needed": None}
    management.agents = [
        agent(1, issues=[ISSUE], download=DOWNLOAD, work=work),
        agent(2, state="drained"),
    ]
    management.requests = [request(1, "streaming", "agent-1"), request(2, "streaming", "agent-2")]
    management.requests += [request(3, "queued"), request(4, "queued")]
    management.requests += [request(5, "queued", priority_class="batch")]
    await dashboard.open(management)
    await expect(dashboard.part("waits-interactive")).to_have_text("interactive0")
    await expect(dashboard.part("waits-default")).to_contain_text("2, longest 1 min")
    await expect(dashboard.part("waits-default")).to_contain_text("s, median 1 min")
    await expect(dashboard.part("waits-batch")).to_contain_text("1, longest 1 min")
    await dashboard.page.get_by_role("link", name="host-001").click()
    here = dashboard.page.locator("#agent-here")
    await expect(dashboard.part("agent-title")).to_have_text("host-001")
    await expect(here).to_contain_text("no room for the file (disk_full)")
    await expect(here).to_contain_text("free 3 GiB")
    await expect(here).to_contain_text("1.0 GiB of 2.0 GiB · 9.5 MiB/s · 1 min 47 s left")
    await expect(dashboard.part("agent-facts")).to_contain_text("CUDA0 (NVIDIA L4, 8.0 GiB)")
    await expect(dashboard.part("agent-statistics")).to_contain_text("2,048 used")
    await expect(here.locator(".slot.busy")).to_have_count(1)
    await expect(here.locator(".slot.busy")).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")
    await expect(here.get_by_test_id("request")).to_have_count(1)
    await expect(dashboard.part("agent-rate")).to_contain_text("10 tokens/s")

    await dashboard.part("agent-drain").click()
    await expect(dashboard.part("agent-said")).to_contain_text("no new requests")
    await dashboard.part("agent-reload").click()
    await expect(dashboard.part("agent-said")).to_contain_text("loads its model again")
    await dashboard.page.goto(f"{management.management}/#/agents/agent-2")
    await dashboard.part("agent-resume").click()
    await expect(dashboard.part("agent-said")).to_contain_text("takes requests again")
    steered = [("agent-1", "drain"), ("agent-1", "reload"), ("agent-2", "resume")]
    assert management.steered == steered

    await dashboard.page.get_by_role("link", name="Skip to the page").focus()
    await dashboard.page.keyboard.press("Enter")
    await expect(dashboard.page.locator("#main")).to_be_focused()
    await expect(dashboard.part("agent-title")).to_have_text("host-002")
    await dashboard.page.goto(f"{management.management}/#/agents/nobody")
    await expect(dashboard.part("agent-gone")).to_be_visible()
    await expect(dashboard.page.locator("#agent-state")).to_be_hidden()
    assert dashboard.complaints == []


async def test_what_is_wrong_stands_first_on_every_page(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(number) for number in range(1, 4)]
    management.hosts, management.diary = [LOST], HAPPENED
    strip, lines = dashboard.part("troubles"), dashboard.part("trouble")
    await dashboard.open(management)
    await expect(dashboard.page).to_have_title("6/12 busy · Fleet · Arriero")
    assert (await strip.bounding_box() or {"height": 0})["height"] == 0, "it takes no room"
    above = [(await box(dashboard.page.locator(each)))["y"] for each in PARTS_OF_FLEET]
    assert above == sorted(above)

    sick = [{"id": f"agent-{number}", "issues": [ISSUE]} for number in (1, 2)]
    twin = {"id": "agent-3", "name": "host-002"}
    wrong = [
        trouble("model", "qwen", message="has failed: agent host-001: no such file"),
        trouble("model", None, 4, message="a, b, c, d"),
        trouble("hosts", None, message="rack-7", hint="start it again"),
        trouble("balancer", "store_away", message="the store is away"),
        trouble("refused", "agents", 2, message="10.0.0.7, 10.0.0.8, at the agents' socket"),
    ]
    told = {**management.totals(), "troubles": wrong, "agents": [*sick, twin]}
    await management.tell("delta", told)
    await expect(lines).to_have_text(
        [
            "Model qwen has failed: agent host-001: no such file",
            "4 models: a, b, c, d",
            "1 lost host: rack-7start it again",
            "The balancer: the store is away",
            "2 refused callers: 10.0.0.7, 10.0.0.8, at the agents' socket",
            "2 agents: no room for the file (disk_full)free 3 GiB",
            "2 agents are called host-002give each a --name of its own",
        ]
    )
    await expect(dashboard.page).to_have_title(re.compile(r"^\(7\) 6/12 busy · Fleet"))
    await management.tell("delta", management.totals())
    await expect(lines).to_have_count(7)
    await expect(strip).to_have_role("status")

    async def follow(number: int) -> None:
        await lines.nth(number).get_by_role("link").focus()
        await dashboard.page.keyboard.press("Enter")

    await follow(0)
    await expect(dashboard.page.locator("#page-model")).to_be_visible()
    await expect(dashboard.page).to_have_title(re.compile(r"^\(7\)"))
    await follow(5)
    await expect(dashboard.part("agents").get_by_test_id("agent")).to_have_count(2)
    await dashboard.part("agent-search").fill("")
    await expect(dashboard.part("agents").get_by_test_id("agent")).to_have_count(3)
    for number, part in ((2, "#hosts-title"), (4, "#diary-title")):
        await dashboard.page.evaluate("scrollTo(0, 0)")
        await follow(number)
        await expect(dashboard.page.locator(part)).to_be_in_viewport()

    well = [{"id": f"agent-{number}", "issues": []} for number in (1, 2)]
    told = {**management.totals(), "troubles": [], "agents": [*well, {**twin, "name": "host-003"}]}
    await management.tell("delta", told)
    await expect(lines).to_have_count(0)
    await expect(strip).to_be_empty()
    await expect(dashboard.page).to_have_title("6/12 busy · Fleet · Arriero")
    assert dashboard.complaints == []


PARTS_OF_FLEET = ("#agents-title", "#throughput-title", "#fleet-history", "#diary-title")


def trouble(
    kind: str, name: str | None, num: int = 1, *, message: str, hint: str = ""
) -> dict[str, Any]:
    return {"kind": kind, "name": name, "num": num, "message": message, "hint": hint}


async def test_an_agent_before_another_server_is_reloaded(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    upstream = {"kind": "vLLM", "address": "http://10.0.0.7:8000"}
    management.agents = [agent(1, model={**MODEL, "upstream": upstream})]
    await dashboard.open(management, "agents/agent-1")
    await expect(dashboard.part("agent-facts")).to_contain_text("vLLM at http://10.0.0.7:8000")
    await dashboard.part("agent-reload").click()
    await expect(dashboard.part("agent-said")).to_contain_text("asks its server again")
    assert management.steered == [("agent-1", "reload")]
    assert dashboard.complaints == []


async def test_an_agents_log_is_followed_while_somebody_looks(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(1), agent(2)]
    management.log = [log_line(5, "info", "ready"), log_line(6, "error", "<b>it broke</b>")]
    await dashboard.open(management, "agents/agent-1")
    lines = dashboard.part("agent-log").get_by_role("listitem")
    await expect(lines).to_have_count(2)
    await expect(lines.last).to_contain_text("error <b>it broke</b>")
    management.log.append(log_line(7, "warning", "again"))
    await expect(lines).to_have_count(3)
    await expect(dashboard.part("agent-log-note")).to_have_text("the last 3 lines")
    await dashboard.turn_to("Models")
    await asyncio.wait_for(management.nobody_reads_logs.wait(), DEADLINE)
    management.log = None
    await dashboard.page.goto(f"{management.management}/#/agents/agent-2")
    await expect(dashboard.part("agent-log-note")).to_have_text("It cannot be read: too old")
    await expect(lines).to_have_count(0)


async def test_requests_are_searched_and_filtered(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(1)]
    management.requests = [
        request(1, "streaming", "agent-1", caller="ana", moves=2),
        request(2, "queued", position=1),
        request(3, "queued", position=2),
    ]
    management.num_moves = 2
    management.ended = [ending("request-9", "stop", "ana"), ending("request-8", "queue_timeout")]
    await dashboard.open(management, "requests")
    rows = dashboard.part("requests").get_by_test_id("request")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(1)).to_contain_text("waiting, number 1")
    await expect(rows.nth(2)).to_contain_text("waiting, number 2")
    await expect(rows.first.get_by_role("link")).to_have_text("host-001")
    await expect(rows.first.get_by_role("cell")).to_contain_text(["ana", "host-001", "1", "2"])
    places = [{"id": "request-3", "position": 1}, {"id": "request-2", "position": 2}]
    await management.tell("delta", {**management.totals(), "requests": places})
    await expect(rows.nth(2)).to_contain_text("waiting, number 1")
    await dashboard.part("request-caller").select_option("ana")
    await expect(rows).to_have_count(1)
    await dashboard.part("clear-filters").click()

    await dashboard.part("request-state").select_option("queued")
    await expect(rows).to_have_count(2)
    await dashboard.part("request-search").fill("request-3")
    await expect(rows).to_have_count(1)
    await dashboard.part("request-search").fill("")
    await dashboard.part("request-state").select_option("ended")
    ended = dashboard.part("ended-request")
    await expect(ended).to_have_count(2)
    await expect(ended.first).to_contain_text("100 → 20")
    await expect(ended.first.get_by_role("link")).to_have_text("host-001")
    await dashboard.part("request-code").select_option("queue_timeout")
    await expect(ended).to_have_count(1)
    await dashboard.part("request-caller").select_option("ana")
    await expect(dashboard.page.locator("#no-ended")).to_be_visible()

    # The address holds the filters: it can be loaded again and sent to others.
    assert dashboard.page.url.endswith("#/requests?state=ended&caller=ana&code=queue_timeout")
    await dashboard.page.reload()
    await expect(dashboard.part("request-caller")).to_have_value("ana")
    await expect(dashboard.page.locator("#no-ended")).to_be_visible()
    await dashboard.part("clear-filters").click()
    await expect(ended).to_have_count(2)
    await dashboard.page.goto(f"{management.management}/#/requests?agent=host-001")
    await expect(rows).to_have_count(1)
    assert dashboard.complaints == []


def ending(request_id: str, code: str, caller: str = "") -> dict[str, object]:
    return {
        "id": request_id,
        "ended_at": 1_700_000_000.0,
        "kind": "generate",
        "code": code,
        "caller": caller,
        "model": "demo",
        "agent": "host-001",
        "error": None,
        "prompt_tokens": 100,
        "cached_tokens": 50,
        "completion_tokens": 20,
        "reasoning_tokens": 0,
        "queue_ms": 12.0,
        "first_token_ms": None if code == "queue_timeout" else 80.0,
        "total_ms": 400.0,
        "moves": 0,
        "prefill_tokens_per_second": None,
        "decode_tokens_per_second": 60.0,
    }


LOST = {
    "name": "rack-7",
    "state": "lost",
    "since": 1.7e9,
    "first_seen": 1.6e9,
    "last_seen": 1.7e9,
    "labels": {"zone": "a"},
    "devices": [],
    "cores": 8,
    "memory": 2**34,
    "platform": "Linux",
    "version": "1.0",
}
_OF_IT = {"at": 1.7e9, "subject": "rack-7", "by": None}
HAPPENED = [
    {**_OF_IT, "number": 1, "kind": "host_came", "message": "it came: 8 cores"},
    {**_OF_IT, "number": 2, "kind": "host_went", "message": "it went: <b>lost</b>"},
    {**_OF_IT, "number": 3, "kind": "models_changed", "message": "+ qwen", "by": "ana"},
]


async def test_the_plots_have_what_was_before_the_page_was_opened(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(1)]
    past = history([900 + number for number in range(60)], step=1)
    past["lines"][0]["name"] = "host-001"
    past["levels"] = [{"queue_peak": 3} for _ in past["times"]]
    management.history = past
    await dashboard.open(management)
    plot = dashboard.part("throughput-plot")
    # A point a second since the page was opened could not reach so far back.
    await expect(plot).to_contain_text("1 min ago")
    assert {"by": "agent", "step": "1", "since": "820"} in management.asked
    assert dashboard.complaints == []


async def test_hosts_that_went_and_what_happened(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.hosts = [LOST, {**LOST, "name": "rack-8", "state": "here"}]
    management.diary = HAPPENED
    await dashboard.open(management)
    [row] = await dashboard.part("host").all()
    for words in ("rack-7", "lost", "zone=a", "8 cores"):
        await expect(row).to_contain_text(words)
    rows = dashboard.part("diary-entry")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("models changed")
    await expect(rows.first).to_contain_text("ana")
    await expect(rows.nth(1)).to_contain_text("it went: <b>lost</b>")
    await expect(rows.first.locator("time")).to_have_text(re.compile(r"^1\d Nov, \d\d:13:20$"))
    by = dashboard.part("diary").get_by_role("columnheader", name="By")
    await expect(by).to_be_visible()
    await dashboard.part("forget-host").click()
    await expect(dashboard.part("hosts-gone")).to_be_hidden()
    assert [each["name"] for each in management.hosts] == ["rack-8"]
    management.diary = HAPPENED[:2]  # without keys nobody is named
    await dashboard.page.reload()
    await expect(rows).to_have_count(2)
    await expect(by).to_be_hidden()
    assert dashboard.complaints == []


async def test_models_and_how_they_are(management: FakeManagement, dashboard: Dashboard) -> None:
    management.agents = [agent(1, download=DOWNLOAD)]
    management.models = [
        {
            "name": "qwen",
            "aliases": ["small"],
            "source": WISHED["source"],
            "status": "loading",
            "progress": 0.25,
            "agents": ["agent-1"],
            "slots": {"total": 4, "busy": 3},
            "waiting": 12,
            "placement": "on host-001 (9.0 GiB); not on attic, without its labels",
            "issues": [],
        },
        {
            "name": "other",
            "aliases": [],
            "status": "failed",
            "progress": None,
            "agents": [],
            "slots": {"total": 0, "busy": 0},
            "waiting": 0,
            "issues": [ISSUE],
        },
    ]
    management.state = {"models": [WISHED]}
    await dashboard.open(management, "models")
    rows = dashboard.part("model-row")
    for words in ("loading, 25%", "host-001", "3 of 4", "12", "10"):
        await expect(rows.first).to_contain_text(words)
    await expect(rows.last).to_contain_text("no room for the file")
    await expect(rows.last).to_contain_text("free 3 GiB")
    await expect(dashboard.part("keeps-nothing")).to_be_hidden()
    await dashboard.page.goto(f"{management.management}/#/models/qwen")
    card = dashboard.part("model-card")
    await expect(card).to_contain_text("25% · host-001 fetches qwen.gguf")
    await expect(card).to_contain_text("on host-001 (9.0 GiB); not on attic, without its labels")
    await expect(card.locator(".fact")).to_have_text(["Slots3 of 4", "Queue12", "Tokens/s10"])
    await dashboard.part("model-edit").click()
    name = dashboard.part("model-form").locator('[data-field="name"]')
    await expect(name).to_have_value("qwen")
    assert dashboard.page.url.endswith("#/models"), "to load it again opens no form"
    await dashboard.page.goto(f"{management.management}/#/models/other")
    await expect(card).to_contain_text("no room for the file")
    await expect(dashboard.part("model-edit")).to_be_hidden()
    management.is_lasting = False
    await dashboard.page.reload()
    await dashboard.open(management, "models")
    await expect(dashboard.part("keeps-nothing")).to_contain_text("gone when it ends")
    assert dashboard.complaints == []


def used(number: int, **columns: str) -> dict[str, object]:
    counts = {"requests": number, "errors": 1, "prompt_tokens": 1000 * number}
    return {**columns, **counts, "cached_tokens": 500, "completion_tokens": 10 * number}


async def test_usage_by_caller_and_by_day(management: FakeManagement, dashboard: Dashboard) -> None:
    management.usage = [
        *(used(1, caller="alice"), used(2, caller="bob")),
        used(3, day="2026-01-30"),
    ]
    await dashboard.open(management, "usage")
    rows = dashboard.part("usage-row")
    await expect(rows).to_have_count(2)
    await expect(rows.last).to_have_text("bob212,00050020")
    await expect(dashboard.part("usage-total")).to_have_text("Total323,0001,00030")
    await expect(dashboard.part("usage-note")).to_contain_text("2026-01-01 to 2026-01-30 (UTC), 3")
    link = rows.last.locator("a")
    await expect(link).to_have_attribute("href", "#/requests?state=ended&caller=bob")
    await dashboard.part("usage-by").select_option("day")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("2026-01-30")
    assert management.asked[-1] == {"by": "day", "since": "30d"}
    await dashboard.page.reload()
    await expect(dashboard.part("usage-by")).to_have_value("day")
    await dashboard.part("usage-since").select_option("7d")
    await expect(dashboard.part("usage-since")).to_have_value("7d")
    management.usage = []
    await dashboard.part("usage-by").select_option("model")
    await expect(dashboard.part("no-usage")).to_have_text("Nothing was used in these days.")
    management.usage = None
    await dashboard.part("usage-by").select_option("caller")
    await expect(dashboard.part("no-usage")).to_have_text("Usage cannot be read: it is away")
    assert management.asked[-1] == {"by": "caller", "since": "7d"}


NOW = 1_700_000_000


def some_keys() -> list[dict[str, object]]:
    return [
        access_key("gone", "viewer", revoked_at=1_700_000_000.0, is_valid=False),
        access_key("rack", "agent", models=["qwen"], labels={"gpu": "yes"}, max_concurrent=2),
        access_key("alice", "inference", expires_at=4e9, last_used_at=1_700_000_000.0),
    ]


async def test_batches_go_on_and_are_cancelled(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    await dashboard.open(management, "batches")
    await expect(dashboard.part("no-batches")).to_contain_text("No batches yet")
    await expect(dashboard.part("upload-command")).to_contain_text(f":{INFERENCE_PORT}/v1/files")
    await expect(dashboard.part("batch-command")).to_contain_text("input_file_id")

    running = batch(2, "in_progress", lines_per_second=4.5, seconds_left=33.0)
    ended = batch(
        1, "completed", completed=197, failed=3, output_file_id="f-o", error_file_id="f-e"
    )
    wrong = batch(0, "failed", total=0, completed=0, failure="no_lines")
    management.batches = [running, ended, wrong]
    await management.tell("delta", {**management.totals(), "requests_ended": ["request-1"]})
    rows = dashboard.part("batch")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("running")
    await expect(rows.first).to_contain_text("50 of 200, 25%")
    await expect(rows.first).to_contain_text("4.5")
    await expect(rows.first).to_contain_text("33 s")
    results = f":{INFERENCE_PORT}/v1/files/f-o/content"
    await expect(rows.nth(1).get_by_role("link", name="answers")).to_have_attribute(
        "href", re.compile(f"{re.escape(results)}$")
    )
    await expect(rows.nth(1).get_by_role("button")).to_have_count(0)
    await expect(rows.last).to_contain_text("failed: no_lines")

    running["completed"] = 100  # the page looks again while a batch is open
    await expect(rows.first).to_contain_text("100 of 200, 50%")
    await rows.first.get_by_role("button").click()
    await expect(dashboard.part("confirm")).to_contain_text("Cancel batch_")
    await dashboard.part("confirm-yes").click()
    await expect(rows.first).to_contain_text("cancelling")
    await expect(dashboard.part("batches-said")).to_contain_text("is being cancelled")
    await expect(rows.first.get_by_role("button")).to_have_count(0)
    assert dashboard.complaints == []


async def test_a_batch_with_failed_lines_is_not_green(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    done = {"total": 9, "completed": 9}
    management.batches = [
        batch(2, "completed", **done),
        batch(1, "completed", **done | {"completed": 8, "failed": 1}),
        batch(0, "completed", **done | {"completed": 0, "failed": 9}),
    ]
    await dashboard.open(management, "batches")
    pills = dashboard.part("batch").locator(".pill")
    await expect(pills).to_have_class(["pill good", "pill queued", "pill bad"])


async def test_results_of_batches_need_the_callers_key(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.role = "viewer"
    management.batches = [
        batch(1, "completed", output_file_id="f-o"),
        batch(0, "in_progress"),
    ]
    await dashboard.open(management, "batches")
    first = dashboard.part("batch").first
    await expect(first.get_by_title("$ARRIERO_KEY")).to_have_text("answers")
    await expect(first.get_by_role("link", name="answers")).to_have_count(0)
    await expect(dashboard.part("cancel").last).to_be_hidden()


async def test_a_role_that_may_not_edit_is_told(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.role, management.models = "viewer", [listed("qwen")]
    await dashboard.open(management, "models?edit=qwen")
    note = dashboard.page.locator("#models-note")
    await expect(note).to_have_text("1 model · to edit qwen, log in with a key of the role admin")
    await expect(dashboard.part("editor")).to_be_hidden()


async def test_keys_are_made_rotated_and_revoked(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.role = "admin"
    management.keys = some_keys()
    management.usage = [used(2, caller="alice")]
    await dashboard.open(management, "keys")
    rows = dashboard.part("key")
    await expect(rows).to_have_count(3)
    alice, gone = rows.first, rows.last
    rack = rows.filter(has_text="rack")
    await expect(alice).to_contain_text("2 requests, 2K tokens")
    await expect(alice.get_by_role("link")).to_have_attribute(
        "href", "#/requests?state=ended&caller=alice"
    )
    await expect(rack).to_contain_text("qwen, gpu=yes")
    await expect(rack).to_contain_text("2 at once")
    await expect(gone).to_contain_text("revoked")
    await expect(gone.get_by_role("button")).to_have_count(0)

    await dashboard.part("key-name").fill("ci")
    await dashboard.part("key-models").fill("qwen, <b>other</b>")
    await expect(dashboard.part("key-labels")).to_be_hidden()
    await dashboard.page.locator("#key-more summary").click()
    await dashboard.part("key-max_concurrent").fill("many")
    await dashboard.part("make-key").click()
    await expect(dashboard.page.locator("#key-max_concurrent-problem")).to_contain_text("whole")
    await dashboard.part("key-max_concurrent").fill("3")
    await dashboard.part("key-expires").fill("90d")
    await dashboard.part("make-key").click()
    await expect(dashboard.part("new-key-secret")).to_have_text(SECRET)
    await expect(rows).to_have_count(4)
    spec = {"name": "ci", "role": "inference", "expires": "90d", "priority": "interactive"}
    more = {"models": ["qwen", "<b>other</b>"], "max_concurrent": 3}
    assert management.sent == [("POST", "", spec | more)]

    await dashboard.part("key-name").fill("ci")
    await dashboard.part("make-key").click()
    await expect(dashboard.page.locator("#key-name-problem")).to_have_text("there is one")
    await dashboard.part("forget-key").click()
    assert SECRET not in await dashboard.page.content()

    await rack.get_by_test_id("revoke-key").click()
    await dashboard.part("confirm-no").click()
    await rack.get_by_test_id("rotate-key").click()
    await expect(dashboard.part("confirm")).to_contain_text("Rotate rack?")
    await dashboard.part("confirm-yes").click()
    await expect(dashboard.part("new-key-secret")).to_have_text(SECRET)
    await dashboard.page.locator('[aria-label="Revoke rack"]').click()
    await dashboard.part("confirm-yes").click()
    await expect(dashboard.part("keys-said")).to_have_text("The key rack is revoked.")
    assert management.sent[1:] == [("POST", "rack", None), ("DELETE", "rack", None)]
    await dashboard.turn_to("Usage")
    assert SECRET not in await dashboard.page.content()
    assert all("409" in each for each in dashboard.complaints)


@pytest.mark.parametrize(
    ("page", "role", "title", "whose"),
    [
        ("keys", "operator", "Access keys", "Access keys are for admins"),
        ("keys", "viewer", "Access keys", "Access keys are for admins"),
        (
            "playground",
            "viewer",
            "Playground",
            "The playground is for operators and admins",
        ),
    ],
)
async def test_a_page_that_is_not_for_a_role_says_so(
    management: FakeManagement, dashboard: Dashboard, page: str, role: str, title: str, whose: str
) -> None:
    management.role = role
    await dashboard.open(management, page)
    await expect(dashboard.page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    await expect(dashboard.part("closed")).to_have_text(
        f"{whose}; the key ana, with which you are logged in, has the role {role}."
    )
    await expect(dashboard.page.locator(f"#page-{page}")).to_be_hidden()
    tab = dashboard.page.get_by_role("navigation").get_by_role("link", name=page.capitalize())
    await expect(tab).to_be_hidden()
    await dashboard.turn_to("Requests")
    await expect(dashboard.part("closed")).to_be_hidden()
    told = dashboard.part("no-requests").get_by_role("link", name="playground")
    await expect(told).to_be_visible(visible=role != "viewer")
    assert dashboard.complaints == []


async def test_a_page_closes_for_a_role_that_has_changed(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.role = "admin"
    await dashboard.open(management, "keys")
    await expect(dashboard.part("make-key")).to_be_visible()
    management.role = "operator"
    await management.tell("snapshot", management.snapshot())
    await expect(dashboard.part("closed")).to_be_visible()
    await expect(dashboard.part("make-key")).to_be_hidden()


async def test_an_address_is_no_name_of_what_is_shown_in_its_place(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    for page in ("closed", "missing"):
        await dashboard.page.goto(f"{management.management}/#/{page}")
        await expect(dashboard.part("missing")).to_contain_text(f"There is no page “{page}”.")
    assert dashboard.complaints == []


async def test_the_past_of_the_fleet_a_model_and_an_agent(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(1)]
    past = history([NOW, NOW + 5, NOW + 10, NOW + 60], since=NOW - 840)
    past["lines"][0]["between_tokens_ms"] = dict.fromkeys(("p50", "p90", "p99"), 4 * [0.44])
    management.history = past
    await dashboard.open(management)
    here = dashboard.page.locator("#fleet-history")
    await expect(here.get_by_test_id("note-tokens")).to_have_text("30 on average")
    await expect(here.get_by_test_id("note-errors")).to_have_text("3 of 11 requests")
    await expect(here.get_by_test_id("legend-errors")).to_have_text("queue_full 3")
    await expect(here.get_by_test_id("legend-first-token")).to_contain_text("p99 103 ms")
    await expect(here.get_by_test_id("legend-between-tokens")).to_contain_text("p50 0.4 ms")
    await expect(here.get_by_test_id("history-note")).to_contain_text("Recorded since")
    # Nothing is drawn across what is not known: no first token in one step, no record in others.
    p50 = here.get_by_test_id("chart-first-token").get_by_test_id("chart-shape").first
    assert (await p50.get_attribute("d") or "").count("M") == 3

    await here.get_by_test_id("chart-errors").focus()
    for _ in range(2):
        await dashboard.page.keyboard.press("ArrowLeft")
    await expect(here.get_by_test_id("legend-errors")).to_have_text("queue_full 3")
    await expect(here.get_by_test_id("legend-first-token")).to_contain_text("p50 \N{EN DASH}")
    await here.get_by_role("button", name="1 h").click()
    await dashboard.page.reload()
    pressed = here.get_by_role("button", pressed=True)
    await expect(pressed).to_have_text("1 h")
    await expect(here.get_by_test_id("note-tokens")).to_have_text("30 on average")
    assert [each for each in management.asked if "by" not in each][-1] == {"since": "1h"}

    await dashboard.page.goto(f"{management.management}/#/agents/agent-1")
    there = dashboard.page.locator("#agent-history")
    await expect(there.get_by_test_id("note-errors")).to_have_text("3 of 11 requests")
    assert management.asked[-1] == {"since": "1h", "by": "agent", "name": "host-001"}
    await dashboard.page.goto(f"{management.management}/#/models/big%20one")
    there = dashboard.page.locator("#model-history")
    await expect(there.get_by_test_id("note-errors")).to_have_text("3 of 11 requests")
    assert management.asked[-1] == {"since": "1h", "by": "model", "name": "big one"}
    await expect(dashboard.part("model-said")).to_contain_text("No agent serves this model")
    ended = dashboard.part("model-ended")
    await expect(ended).to_have_attribute("href", "#/requests?state=ended&model=big+one")
    assert dashboard.complaints == []


async def test_a_past_that_is_empty_or_cannot_be_read(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    empty = {**history([], since=NOW), "lines": []}
    management.history = empty
    await dashboard.open(management)
    here = dashboard.page.locator("#fleet-history")
    await expect(here.get_by_test_id("history-note")).to_contain_text("Nothing has been recorded")
    await expect(here.get_by_test_id("chart-errors")).to_contain_text("No errors in this time.")

    management.history = history([NOW, NOW + 5])
    await here.get_by_role("button", name="24 h").click()
    await expect(here.get_by_test_id("note-errors")).to_have_text("3 of 7 requests")
    management.history = None
    await here.get_by_role("button", name="15 min").click()
    await expect(here.get_by_test_id("history-note")).to_contain_text("cannot be read: it broke")
    await expect(here.get_by_test_id("history-note")).to_contain_text("What is shown is older")
    await expect(here.get_by_test_id("note-errors")).to_have_text("3 of 7 requests")
    # A browser writes answers of 500 to its console; nothing else is there.
    assert all("500" in each for each in dashboard.complaints)


async def test_a_wish_is_tried_and_applied(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.state = {"models": [WISHED]}
    management.plan = [
        {
            "agent": "agent-1",
            "name": "host-001",
            "action": "reload",
            "model": "qwen",
            "why": "slots changes",
        }
    ]
    management.lacking = [{"name": "qwen", "issues": [ISSUE]}]
    management.models = [listed("qwen")]
    await dashboard.open(management, "models")
    form = dashboard.part("model-form")
    await expect(form).to_have_count(0)
    await dashboard.part("edit-model").click()
    await expect(form).to_have_count(1)
    slots = form.locator('[data-field="slots"]')
    await expect(form.locator('[data-field="agents.labels"]')).to_have_value("gpu=yes")

    await slots.fill("many")
    await dashboard.part("try-state").click()
    await expect(dashboard.part("state-said")).to_contain_text("Slots: give a whole number")
    await slots.fill("8")
    await dashboard.part("try-state").click()
    await expect(dashboard.part("plan-models")).to_contain_text("~ qwen")
    await expect(dashboard.part("plan-models")).to_contain_text("slots: 4 8")
    await expect(dashboard.part("plan-step")).to_contain_text("slots changes")
    await expect(dashboard.part("plan-lacking")).to_contain_text("qwen: no room for the file")
    assert management.state["models"] == [WISHED], "a dry run changes nothing"

    await dashboard.part("add-model").click()
    await expect(dashboard.part("state-said")).to_contain_text("before you open another one")
    await dashboard.part("apply-state").click()
    await expect(dashboard.part("state-said")).to_have_text("Applied.")
    await expect(form).to_have_count(0)
    await dashboard.part("add-model").click()
    await form.locator('[data-field="name"]').fill("<b>new</b>")
    await form.locator('[data-field="source"]').fill("file:///models/new.gguf")
    await dashboard.part("apply-state").click()
    await expect(dashboard.part("state-said")).to_have_text("Applied.")
    first, second = management.state["models"]
    empty = {**dict.fromkeys(LEFT_OUT), "adapters": [], "sampling": {}, "engine": {}}
    assert first == {**WISHED, **empty, "slots": 8}
    assert second["name"] == "<b>new</b>"
    assert second["agents"] == {"labels": {}, "replicas": "all"}
    await dashboard.part("edit-model").click()
    await dashboard.part("remove-model").click()
    await dashboard.part("confirm-yes").click()
    await expect(dashboard.part("state-said")).to_have_text("qwen is removed.")
    assert [model["name"] for model in management.state["models"]] == ["<b>new</b>"]
    assert dashboard.complaints == []


LEFT_OUT = ("context_size", "idle_timeout", "sha256", "chat_template", "projector")


async def test_what_is_wrong_with_a_wish_stands_at_its_field(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.state = {"models": [WISHED]}
    management.problems = [
        {"field": "models.0.source", "message": "`models.0.source` must start with hf://"},
        {"field": "models.0.sha256", "message": "`models.0.sha256` must have 64 digits"},
        {"field": None, "message": "too much"},
    ]
    management.models = [listed("qwen")]
    await dashboard.open(management, "models")
    await dashboard.part("edit-model").click()
    form = dashboard.part("model-form")
    await form.locator('[data-field="source"]').fill("ftp://x")
    await dashboard.part("apply-state").click()
    source = form.locator('[data-field="source"]')
    await expect(source).to_have_attribute("aria-invalid", "true")
    problems = form.get_by_role("alert")
    await expect(problems.filter(visible=True)).to_have_text(
        ["must start with hf://", "must have 64 digits"]
    )
    await expect(dashboard.part("state-said")).to_have_text(
        "Refused: look at Source, SHA-256; too much"
    )

    management.problems, management.revision = [], 2
    await source.fill("hf://org/other:Q8_0")
    await dashboard.part("apply-state").click()
    await expect(dashboard.part("state-said")).to_contain_text("Somebody else changed it")
    assert management.state["models"] == [WISHED]


def fill(management: FakeManagement) -> None:
    """Something for each page to show."""
    management.agents = [agent(1, issues=[ISSUE], download=DOWNLOAD), agent(2, state="drained")]
    management.requests = [request(1, "streaming", "agent-1"), request(2, "queued")]
    management.state, management.models = {"models": [WISHED]}, [listed("qwen")]
    management.hosts, management.diary = [LOST], HAPPENED
    management.troubles = [
        trouble(
            "model", "qwen", message="has failed: agent host-001: /models/qwen.gguf is missing"
        ),
        trouble("hosts", None, message="rack-7", hint="start the agent again"),
    ]
    management.ended = [ending("request-9", "stop", "ana")]
    management.log = [log_line(n, level, level) for n, level in enumerate(LEVELS, 1)]
    management.usage = [used(1, caller="alice"), used(2, caller="bob")]
    management.keys = some_keys()
    management.batches = [batch(1, "in_progress"), batch(0, "completed", output_file_id="f")]


@pytest.mark.parametrize(("scheme", "rules"), [("light", {}), ("dark", COLOURS)])
async def test_axe_finds_nothing(
    management: FakeManagement, dashboard: Dashboard, scheme: str, rules: dict[str, list[str]]
) -> None:
    fill(management)
    clients = await asyncio.to_thread(node_clients)
    axe = (clients / "node_modules/axe-core/axe.min.js").read_text()
    await dashboard.page.emulate_media(color_scheme=scheme)
    await dashboard.open(management)
    await dashboard.page.evaluate(axe)
    found = {}
    for page, shown in PAGES.items():
        await dashboard.page.goto(f"{management.management}/#/{page}")
        await expect(dashboard.page.locator(f"#page-{shown}")).to_be_visible()
        if page == "models":
            await dashboard.part("edit-model").click()
            await expect(dashboard.part("model-form")).to_be_visible()
        violations = await dashboard.page.evaluate(AXE, rules)
        if violations:
            found[page] = violations
    assert found == {}, json.dumps(found, indent=1)


@pytest.mark.parametrize("is_empty", [False, True])
async def test_on_a_phone_nothing_is_cut(
    management: FakeManagement, dashboard: Dashboard, is_empty: bool
) -> None:
    """No page is wider than the screen, and no text is cut, however narrow its place.

    Without requests and batches the pages show commands instead.
    """
    fill(management)
    management.ended += [ending("request-8", "queue_timeout", "a-rather-long-name-of-a-key")]
    if is_empty:
        management.requests = management.batches = management.agents = []
    await dashboard.page.set_viewport_size({"width": 375, "height": 812})
    await dashboard.open(management)
    found = {}
    for page, shown in PAGES.items():
        await dashboard.page.goto(f"{management.management}/#/{page}")
        place = dashboard.page.locator(f"#page-{shown}")
        await expect(place).to_be_visible()
        if (row := (EMPTY if is_empty else ROWS).get(page)) is not None:
            await expect(place.get_by_test_id(row).first).to_be_visible()
        if cut := await dashboard.page.evaluate(CUT):
            found[page] = cut
    assert found == {}, json.dumps(found, indent=1)
    assert dashboard.complaints == []


ROWS = {
    "models": "model-row",
    "requests": "request",
    "requests?state=ended": "ended-request",
    "batches": "batch",
    "usage": "usage-row",
    "keys": "key",
}
"""What is read after its page is shown."""

EMPTY = {**ROWS, "requests": "curl-command", "batches": "upload-command"}

CUT = """() => {
    const shown = [...document.querySelectorAll("body *")].filter((each) =>
        each.checkVisibility() && !each.closest(".hidden, .skip, thead, svg, .log, pre"));
    const cut = shown.filter((each) => {
        const {right, left, width} = each.getBoundingClientRect();
        const isBeyond = width > 1 && (right > innerWidth + 1 || left < -1);
        const hides = getComputedStyle(each).overflowX !== "visible";
        return isBeyond || (hides && each.scrollWidth > each.clientWidth + 1);
    });
    return cut.map((each) => each.outerHTML.slice(0, 160));
}"""


async def test_on_a_phone_long_lists_are_folded(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.ended = [ending(f"request-{number}", "stop") for number in range(30)]
    await dashboard.page.set_viewport_size({"width": 375, "height": 812})
    await dashboard.open(management, "requests?state=ended")
    rows = dashboard.part("ended-request").filter(visible=True)
    await expect(rows).to_have_count(8)
    await dashboard.page.get_by_role("button", name="Show all").click()
    await expect(rows).to_have_count(30)
    management.ended = management.ended[:8]
    await dashboard.page.reload()
    await expect(rows).to_have_count(8)
    await expect(dashboard.page.get_by_role("button", name="Show all")).to_have_count(0)
    assert dashboard.complaints == []


@pytest.mark.parametrize("width", [1280, 375])
async def test_the_playground_has_room_for_all_that_is_open(
    management: FakeManagement, dashboard: Dashboard, width: int
) -> None:
    """The answer stays readable, and nothing lies outside of the card."""
    management.events = [words("A slot is a place for one sequence. " * 40), DONE]
    await dashboard.page.set_viewport_size({"width": width, "height": 812})
    await dashboard.open(management, "playground")
    await dashboard.ask("What is a slot?")
    await dashboard.settle("stop")
    await dashboard.part("as-python").click()
    await dashboard.page.locator("#settings summary").click()
    chat, card, last, forget = [
        await box(dashboard.page.locator(f"#{each}"))
        for each in ("chat", "talk", "tools", "forget-chat")
    ]
    assert chat["height"] >= 200
    assert last["y"] + last["height"] < card["y"] + card["height"]
    assert forget["x"] + forget["width"] <= width
    scrolls = "each => each.scrollHeight > each.clientHeight + 1"
    assert await dashboard.page.locator("#settings").evaluate(scrolls) is False
    assert dashboard.complaints == []


async def box(place: Locator) -> FloatRect:
    """Where something shown is, in pixels."""
    found = await place.bounding_box()
    assert found is not None
    return found


async def test_on_a_phone_the_log_in_has_a_margin(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.is_login_needed = True
    await dashboard.page.set_viewport_size({"width": 375, "height": 812})
    await dashboard.page.goto(management.management)
    await expect(dashboard.part("access-key")).to_be_focused()
    card = await box(dashboard.part("log-in"))
    assert card["x"] >= 8
    assert card["x"] + card["width"] <= 375 - 8


async def test_what_lies_over_a_page_goes_with_it(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    fill(management)
    await dashboard.open(management, "requests?state=ended")
    await dashboard.page.get_by_role("button", name="Waited").click()
    await expect(dashboard.part("hint")).to_be_visible()
    await dashboard.part("open-request").click()
    await expect(dashboard.part("request-details")).to_be_visible()
    await dashboard.page.evaluate("location.hash = '#/nonsense'")
    await expect(dashboard.part("missing")).to_contain_text("There is no page “nonsense”.")
    await expect(dashboard.part("request-details")).to_be_hidden()
    await expect(dashboard.part("hint")).to_be_hidden()
    await dashboard.part("missing").get_by_role("link", name="fleet").click()
    await expect(dashboard.page.locator("#page-fleet")).to_be_visible()
    assert dashboard.complaints == []


async def test_devices_of_a_host_and_their_last_minutes(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    def measured(used: int, use: float | None, temperature: float | None) -> dict[str, Any]:
        return device("CPU", used, 64 << 30, use=use, temperature=temperature)

    management.agents = [agent(1, devices=[measured(16 << 30, 0.25, 61.4)])]
    await dashboard.open(management, "agents/agent-1")
    devices = dashboard.part("agent-devices")
    facts = devices.locator(".fact")
    await expect(facts).to_have_text(
        ["Host: Memory used16.0 GiB of 64.0 GiB", "Host: Processor25%", "Host: Temperature61 °C"]
    )
    later = {"id": "agent-1", "devices": [measured(32 << 30, 0.5, None)]}
    await management.tell("delta", {**management.totals(), "agents": [later]})
    await expect(facts).to_have_text(
        ["Host: Memory used32.0 GiB of 64.0 GiB", "Host: Processor50%"]
    )
    lines = devices.locator("polyline")
    for number in range(2):
        points = await lines.nth(number).get_attribute("points") or ""
        (_, before), (right, now) = (point.split(",") for point in points.split())
        assert right == "120.0", "the newest stands at the right"
        assert float(now) < float(before), "more is higher"
    await devices.get_by_role("button", name="Processor").click()
    await expect(dashboard.part("hint")).to_contain_text("share of all cores")
    assert dashboard.complaints == []


async def test_what_lies_where_is_a_bar_for_each_device(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    def full(name: str, used: int, **models: int) -> dict[str, Any]:
        sizes = {each: size << 30 for each, size in models.items()}
        return device(name, used << 30, 24 << 30, models=sizes)

    def served(name: str) -> dict[str, object]:
        slots = {"total": 1, "busy": 0}
        more = {"state": "ready", "tasks": ["generate"], "memory_needed": None}
        more["average_sequences"] = None
        return {"name": name, "slots": slots, **more}

    devices = [
        full("CPU", 4, chat=1, titles=1),
        full("CUDA0", 20, chat=12, titles=4),
        full("CUDA1", 2, chat=6),
    ]
    long = "a-long-name-of-a-model-that-has-its-quantisation-and-the-year-in-it-q4_k_m"
    models = [served(name) for name in ("chat", "titles", long)]
    devices.append(full("CUDA2", 0, **{long: 20}))
    for model, average in zip(models, (3.2, 1.0, None), strict=True):
        model["average_sequences"] = average
    engines = STATISTICS | {"average_sequences": None, "decode_tokens_per_second": 21.0}
    management.agents = [agent(1, devices=devices, models=models, statistics=engines)]
    await dashboard.page.set_viewport_size({"width": 375, "height": 812})
    await dashboard.open(management, "agents/agent-1")
    bars = dashboard.part("agent-memory").get_by_role("img")
    for number, (name, words) in enumerate(
        {
            "the host": "chat 1.0 GiB, titles 1.0 GiB, Other programs 2.0 GiB, Free 20.0 GiB",
            "CUDA0": "chat 12.0 GiB, titles 4.0 GiB, Other programs 4.0 GiB, Free 4.0 GiB",
            "CUDA1": "chat 6.0 GiB, Free 18.0 GiB",
        }.items()
    ):
        await expect(bars.nth(number)).to_have_attribute("aria-label", f"Memory of {name}: {words}")
    parts = bars.nth(1).locator("rect")
    assert [await parts.nth(each).get_attribute("width") for each in range(2)] == [
        "500",
        str(4 / 24 * 1000),
    ]
    legend = dashboard.part("agent-memory").locator("li.memory").nth(1).locator(".legend li")
    await expect(legend).to_have_text(
        ["chat12.0 GiB", "titles4.0 GiB", "Other programs4.0 GiB", "Free4.0 GiB"]
    )
    rows = dashboard.part("agent-memory").locator("li.memory")
    for number in range(2):
        dot = rows.nth(number).locator(".swatch").nth(1)
        await expect(dot).to_have_class("swatch series-1")  # of `titles`, on all devices
    assert await dashboard.page.evaluate(CUT) == []
    engine = dashboard.part("engine-speed").locator("visible=true")
    await expect(engine).to_contain_text(f"21 tokens/s · chat 3.2, titles 1.0, {long} ")
    await expect(engine).to_contain_text("at once")
    told = full("CUDA0", 8, titles=4)
    told["memory"] |= {"others": 3 << 30}
    less = {"id": "agent-1", "devices": [told], "models": [models[1]]}
    await management.tell("delta", {**management.totals(), "agents": [less]})
    await expect(bars).to_have_count(1)
    await expect(bars.nth(0)).to_have_attribute(
        "aria-label",
        "Memory of CUDA0: titles 4.0 GiB, Engines 1.0 GiB, Other programs 3.0 GiB, Free 16.0 GiB",
    )
    assert dashboard.complaints == []


async def test_the_plots_of_devices_have_what_was_before_the_page_was_opened(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    """`at` of all events is 1000; the past ends 10 s before. Some figures were not told always."""
    times = [1000.0 - 5 * number for number in range(100, 1, -1)]
    warmth = [None if number % 2 else 40 + number / 5 for number in range(len(times))]
    past = {
        "name": "CPU",
        "kind": "cpu",
        "times": times,
        "memory_used": [(number % 50) << 30 for number in range(len(times))],
        "use": [number / 100 for number in range(len(times))],
        "temperature": warmth,
    }
    management.devices = [past]
    now = device("CPU", 32 << 30, 64 << 30, use=0.5, temperature=61.0)
    management.agents = [agent(1, devices=[now])]
    await dashboard.open(management, "agents/agent-1")
    lines = dashboard.part("agent-devices").locator("polyline")
    await expect(lines.nth(1)).to_have_attribute("points", re.compile(r"^(\S+ ){99}120\.0,"))
    drawn = [(await lines.nth(number).get_attribute("points") or "").split() for number in range(3)]
    assert [len(points) for points in drawn] == [100, 100, 51]
    left = float(drawn[1][0].split(",")[0])
    assert 15 < left < 22, "500 of 600 seconds ago"
    later = {"id": "agent-1", "devices": [{**now, "use": 0.6}]}
    await management.tell("delta", {**management.totals(), "agents": [later]})
    await expect(lines.nth(1)).to_have_attribute("points", re.compile(r"^(\S+ ){100}120\.0,"))
    assert dashboard.complaints == []


async def test_words_are_explained_and_an_ended_request_opens(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    fill(management)
    error = "no slot was free for 30 s"
    management.ended = [ending("request-8", "queue_timeout", "ana") | {"moves": 2, "error": error}]
    await dashboard.open(management, "requests?state=ended")
    hint = dashboard.part("hint")
    await expect(hint).to_be_hidden()
    await dashboard.page.get_by_role("button", name="Waited").click()
    await expect(hint).to_have_text("Waited: From the request's arrival until an agent took it.")
    await dashboard.page.keyboard.press("Escape")
    await expect(hint).to_be_hidden()

    await dashboard.part("open-request").click()
    details = dashboard.part("request-details")
    await expect(details).to_contain_text("request-8")
    await expect(dashboard.part("request-error")).to_have_text(error)
    facts = dashboard.part("request-facts")
    for name, value in {
        "Caller's key": "ana",
        "Moves": "2",
        "How it ended": "queue_timeout",
    }.items():
        fact = facts.locator(".fact").filter(has_text=name)
        await expect(fact.locator("dd")).to_have_text(value)
    await dashboard.part("request-close").click()
    await expect(details).to_be_hidden()
    assert dashboard.complaints == []


LEVELS = ("info", "warning", "error")

AXE = """async (rules) => (await axe.run(document, rules)).violations.map(
    ({id, nodes}) => ({id, nodes: nodes.slice(0, 4).map((node) => node.html.slice(0, 200))}))"""


def words(text: str, kind: str = "content") -> dict[str, str]:
    return {"event": "token", "id": "r", "kind": kind, "text": text}


DONE = {
    "event": "done",
    "id": "r",
    "finish_reason": "stop",
    "usage": {
        "prompt_tokens": 9,
        "cached_tokens": 4,
        "completion_tokens": 3,
        "reasoning_tokens": 0,
    },
    "timings": {
        "queue_ms": 0.0,
        "first_token_ms": 20.0,
        "total_ms": 90.0,
        "prefill_tokens_per_second": 900.0,
        "decode_tokens_per_second": 50.0,
    },
    "agent": "host-001",
}


async def test_a_long_conversation_still_alternates(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.events = [words("yes"), DONE]
    await dashboard.open(management, "playground")
    await dashboard.page.locator("#settings summary").click()
    await dashboard.part("system").fill("Be brief.")
    for turn in range(15):
        await dashboard.ask(f"question {turn}")
        await expect(dashboard.part("bubble-assistant")).to_have_count(turn + 1)
        await dashboard.settle("stop")
    for body in management.generated:
        system, *turns = [message["role"] for message in body["messages"]]
        assert system == "system"
        assert turns == (["user", "assistant"] * 15)[: len(turns)]
        assert turns[-1] == "user"
    assert management.generated[-1]["messages"][-1]["content"] == "question 14"
    assert dashboard.complaints == []


async def test_answers_are_drawn_from_markdown_and_nothing_is_injected(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.events = [
        words("let me think", "reasoning"),
        words("# Title\n\nSome **bold** and `code`.\n\n- one\n- two\n\n```py\nprint(1)\n```\n"),
        words("\n<img src=x onerror=alert(1)> [bad](javascript:alert(1)) [good](https://a.test/)"),
        {"event": "tool_call", "id": "r", "call": {"id": "1", "name": "look", "arguments": "{}"}},
        DONE,
    ]
    await dashboard.open(management, "playground")
    await dashboard.ask("?")
    answer = await dashboard.settle("stop")
    marked = answer.get_by_test_id("answer-marked")
    await expect(marked.locator("h4")).to_have_text("Title")
    await expect(marked.locator("strong")).to_have_text("bold")
    await expect(marked.locator("li")).to_have_text(["one", "two"])
    await expect(marked.locator("pre code")).to_have_text("print(1)")
    await expect(marked.locator("img")).to_have_count(0)
    await expect(marked).to_contain_text("<img src=x onerror=alert(1)>")
    await expect(marked.locator("a")).to_have_count(1)
    await expect(marked.locator("a")).to_have_attribute("href", "https://a.test/")
    await expect(answer.get_by_test_id("thoughts")).to_contain_text("let me think")
    await expect(answer.get_by_test_id("tool-call")).to_contain_text("look")
    await expect(answer.get_by_test_id("answer-meta")).to_contain_text("prompt 9, 4 cached")
    assert dashboard.complaints == []


async def test_chats_are_kept_edited_and_asked_again(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.events = [words("first"), DONE]
    titles = dashboard.part("chats").get_by_role("button")
    await dashboard.open(management, "playground")
    await dashboard.ask("one")
    await dashboard.settle("stop")
    await dashboard.part("new-chat").click()
    await expect(titles).to_have_text(["Nothing asked yet", "one"])
    await dashboard.ask("two")
    await dashboard.settle("stop")
    await expect(titles).to_have_text(["two", "one"])

    await dashboard.page.reload()
    await titles.last.click()
    await expect(dashboard.part("bubble-user")).to_contain_text("one")
    management.events = [words("second"), DONE]
    await dashboard.page.get_by_role("button", name="Regenerate").click()
    await expect(dashboard.part("answer")).to_have_text("second")
    await dashboard.settle("stop")
    await dashboard.page.get_by_role("button", name="Edit").click()
    await expect(dashboard.part("prompt")).to_have_value("one")
    await dashboard.ask("one more")
    await dashboard.settle("stop")
    asked = [body["messages"] for body in management.generated]
    assert asked[2:] == [[user("one")], [user("one more")]]

    await dashboard.part("forget-chat").click()
    await expect(titles).to_have_text(["two"])

    management.events = []
    await dashboard.part("new-chat").click()
    await dashboard.ask("three")
    await dashboard.settle("error")
    await expect(titles).to_have_text(["three", "two"])
    await dashboard.page.reload()
    await expect(titles).to_have_text(["three", "two"])
    await expect(dashboard.part("prompt")).to_have_value("three")
    assert dashboard.complaints == []


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_commands_name_the_address_that_clients_call(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.public_url = "https://llm.example/arriero"
    await dashboard.open(management, "requests")
    curl = dashboard.part("curl-command")
    await expect(curl).to_contain_text("curl -N https://llm.example/arriero/api/v1/generate --json")
    agent_command = dashboard.part("agent-command")
    address = management.management.removeprefix("http")
    await expect(agent_command).to_contain_text(f"--balancer ws{address} --model")


async def test_settings_reach_the_request_and_its_programs(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.events = [words("{}"), DONE]
    await dashboard.open(management, "playground")
    await dashboard.page.locator("#settings summary").click()
    await dashboard.page.get_by_label("top k").fill("7")
    await dashboard.part("thinking").select_option("no")
    await dashboard.part("schema").fill("{")
    await dashboard.ask("it's me")
    await expect(dashboard.part("settings-problem")).to_contain_text("JSON schema")
    assert management.generated == []

    await dashboard.part("schema").fill('{"type": "object"}')
    await dashboard.part("as-curl").click()
    curl = await dashboard.part("snippet-text").text_content() or ""
    await dashboard.part("as-python").click()
    program = await dashboard.part("snippet-text").text_content() or ""
    await dashboard.part("prompt").press("Enter")
    await dashboard.settle("stop")
    (sent,) = management.generated
    assert sent == {
        "messages": [user("it's me")],
        "temperature": 0.8,
        "top_k": 7,
        "thinking": False,
        "grammar": {"type": "json_schema", "schema": {"type": "object"}},
    }
    assert json.loads(shlex.split(curl)[-1]) == sent
    assert "ARRIERO_KEY" not in curl + program
    clients_call = f"http://127.0.0.1:{INFERENCE_PORT}"
    assert f"curl -N {clients_call}/api/v1/generate " in curl
    assert f"Client({json.dumps(clients_call)})" in program
    call = next(
        node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "client.stream"
    )
    given = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    assert given == sent
    assert dashboard.complaints == []


async def test_where_a_key_is_needed_programs_read_it_from_the_environment(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.role = "operator"
    await dashboard.open(management, "playground")
    await dashboard.part("as-curl").click()
    curl = await dashboard.part("snippet-text").text_content() or ""
    assert '-H "Authorization: Bearer $ARRIERO_KEY"' in curl
    await dashboard.part("as-python").click()
    program = await dashboard.part("snippet-text").text_content() or ""
    assert "import os\n" in program
    assert 'key=os.environ["ARRIERO_KEY"])' in program
    ast.parse(program)
    await expect(dashboard.part("curl-command")).to_contain_text("Bearer $ARRIERO_KEY")
    await expect(dashboard.part("agent-command")).to_contain_text("--key-file")
