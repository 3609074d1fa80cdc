"""Whether the dashboard stutters: `python -m bench.page`.

A balancer with many simulated agents under load, and the page in a headless Chromium. A task that
takes more than 50 ms of the browser's main thread is a long one: it delays what a person does. That
is processor time: the balancer and its agents run on the same cores and would be counted otherwise.
With `--pictures FOLDER` the page is photographed in both lights and on a phone.
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, Page, async_playwright
from websockets.asyncio.client import ClientConnection, connect

from bench.balancer.sides import Cores, Starter
from bench.harness import Flags, at_least, print_table, save

SLOTS = 4
REQUESTS_PER_SOCKET = 500
SETTLE = 5.0
"""Seconds after the page was opened in which nothing is measured."""
WATCH = 10.0
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}

LONG = 50.0
"""Milliseconds from which on a task delays what a person does."""
CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
_TASK = "ThreadControllerImpl::RunTask"
_MAIN = "CrRendererMain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was done, and how long each task of the main thread took meanwhile, in milliseconds.

    `tasks` is processor time, `elapsed` is time that passed. `busy` and `script`: processor seconds
    of the main thread, and of scripts on it.
    """

    what: str
    seconds: float
    tasks: list[float]
    elapsed: list[float]
    busy: float
    script: float


async def watch(_page: Page) -> None:
    await asyncio.sleep(WATCH)


async def scroll(page: Page) -> None:
    for direction in (1, -1):
        for _ in range(40):
            await page.mouse.wheel(0, direction * 300)
            await asyncio.sleep(0.05)


async def search(page: Page) -> None:
    box = page.get_by_test_id("agent-search")
    for text in ("simulated-1", "99", "ready", ""):
        await box.fill("")
        await box.press_sequentially(text, delay=80)
    await box.fill("")


async def sort(page: Page) -> None:
    for order in ("rate", "busy", "name"):
        await page.get_by_test_id("agent-sort").select_option(order)
        await asyncio.sleep(2.0)


ACTIONS: dict[str, Callable[[Page], Awaitable[None]]] = {
    "watching": watch,
    "scrolling": scroll,
    "searching": search,
    "sorting": sort,
}


async def observed(page: Page) -> list[Finding]:
    """Do everything once."""
    browser = page.context.browser
    if browser is None:
        raise RuntimeError("the page has no browser")
    tools = await page.context.new_cdp_session(page)
    await tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def spent() -> dict[str, float]:
        metrics = (await tools.send("Performance.getMetrics"))["metrics"]
        return {each["name"]: each["value"] for each in metrics}

    findings = []
    for what, act in ACTIONS.items():
        await browser.start_tracing(page=page, categories=CATEGORIES)
        before = await spent()
        begun = asyncio.get_running_loop().time()
        await act(page)
        seconds = asyncio.get_running_loop().time() - begun
        after = await spent()
        tasks = main_tasks(json.loads(await browser.stop_tracing())["traceEvents"])
        findings.append(
            Finding(
                what=what,
                seconds=seconds,
                tasks=[task.processor for task in tasks],
                elapsed=[task.elapsed for task in tasks],
                busy=after["TaskDuration"] - before["TaskDuration"],
                script=after["ScriptDuration"] - before["ScriptDuration"],
            )
        )
    return findings


@dataclass(frozen=True, slots=True)
class Task:
    """Milliseconds that a task of a page's main thread took."""

    processor: float
    elapsed: float


def main_tasks(events: list[dict[str, Any]]) -> list[Task]:
    """The tasks of the busiest page in a trace of Chromium's.

    Raises `RuntimeError` where there is none: then a page without long tasks would mean nothing.
    """
    mains = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == _MAIN
    }
    found: dict[tuple[int, int], list[Task]] = {main: [] for main in mains}
    for each in events:
        main = each["pid"], each["tid"]
        if main in mains and each["name"] == _TASK and "tdur" in each:
            found[main].append(Task(each["tdur"] / 1000, each["dur"] / 1000))
    busiest = max(found.values(), key=len, default=[])
    if not busiest:
        raise RuntimeError("the trace has no tasks of a page's main thread")
    return busiest


# ---- the fleet that is watched


class Load:
    """Requests over WebSockets; when one ends the next starts."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self._numbers = itertools.count()

    async def keep_up(self, url: str, num_requests: int, spread: float) -> None:
        """Keep `num_requests` running, the first of them started over `spread` seconds. Never
        returns."""
        async with (
            connect(url, compression=None, max_size=None, ping_interval=None, proxy=None) as socket,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._follow(socket))
            for _ in range(num_requests):
                await self._ask(socket)
                await asyncio.sleep(spread / num_requests)

    async def _follow(self, socket: ClientConnection) -> None:
        async for frame in socket:
            if "error" in json.loads(frame):
                raise RuntimeError(f"a request failed: {frame[:300]!r}")
            await self._ask(socket)

    async def _ask(self, socket: ClientConnection) -> None:
        call = {"jsonrpc": "2.0", "id": next(self._numbers), "method": "generate"}
        params = {"prompt": "a", "max_tokens": self._num_tokens, "stream": False}
        await socket.send(json.dumps({**call, "params": params}))


def started(starter: Starter, cores: Cores, given: argparse.Namespace) -> dict[str, str]:
    """Addresses of a balancer, once its agents are there."""
    balancer = starter.start(
        cores.balancer,
        str(Path(sys.executable).parent / "balancer"),
        *("--inference-addr", "127.0.0.1:0", "--management-addr", "127.0.0.1:0"),
        *("--max-connections", "20000", "--max-buffered-requests", "20000"),
        *("--drain-timeout", "0s", "--heartbeat-timeout", "30s", "--log-level", "warning"),
    )
    addresses = starter.ready(balancer)
    agents = starter.start(
        cores.others,
        *(sys.executable, "-m", "bench.balancer.agents"),
        *("--url", f"ws://{addresses['management']}", "--agents", str(given.agents)),
        *("--slots", str(-(-given.requests // given.agents)), "--rate", str(given.rate)),
    )
    starter.ready(agents)
    return addresses


# ---- the browser


async def photograph(browser: Browser, url: str, folder: Path) -> None:
    """What a person sees first."""
    for name, (width, height) in SIZES.items():
        page = await browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if name == "dark" else "light",
        )
        await page.goto(url)
        await asyncio.sleep(SETTLE)
        await page.screenshot(path=folder / f"{name}.png")
        await page.close()


def shares(num_requests: int) -> list[int]:
    """How many of them go over each socket."""
    whole, rest = divmod(num_requests, REQUESTS_PER_SOCKET)
    return [REQUESTS_PER_SOCKET] * whole + [rest] * (rest > 0)


async def run(given: argparse.Namespace) -> list[Finding]:
    """Raises `RuntimeError` where the balancer does not start."""
    cores = Cores(*sorted(os.sched_getaffinity(0))[:2])
    chromium = await asyncio.to_thread(
        subprocess.check_output, ["scripts/install-program", "chromium"], text=True
    )
    with ExitStack() as stack:
        starter = Starter(stack, Path(stack.enter_context(TemporaryDirectory())))
        addresses = await asyncio.to_thread(started, starter, cores, given)
        load = Load(round(given.rate * given.requests / given.turnover))
        url = f"ws://{addresses['inference']}/api/v1/socket"
        async with asyncio.TaskGroup() as group:
            clients = [
                group.create_task(load.keep_up(url, some, 5.0)) for some in shares(given.requests)
            ]
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=chromium.strip(),
                    args=["--no-sandbox"] if os.geteuid() == 0 else [],
                )
                findings = await seen(browser, f"http://{addresses['management']}/", given.pictures)
            for client in clients:
                client.cancel()
        return findings


async def seen(browser: Browser, url: str, pictures: Path | None) -> list[Finding]:
    page = await browser.new_page(viewport={"width": 1280, "height": 900})
    await page.goto(url)
    await asyncio.sleep(SETTLE)
    findings = await observed(page)
    await page.close()
    if pictures is not None:
        await photograph(browser, url, pictures)
    await browser.close()
    return findings


def row(found: Finding) -> list[str]:
    """The figures of one action."""
    return [
        found.what,
        f"{found.seconds:.1f}",
        str(sum(task > LONG for task in found.tasks)),
        f"{max(found.tasks):.0f}",
        f"{sorted(found.tasks)[len(found.tasks) * 99 // 100]:.1f}",
        f"{max(found.elapsed):.0f}",
        f"{found.busy / found.seconds * 100:.1f}",
        f"{found.script / found.seconds * 100:.1f}",
    ]


def main() -> None:
    flags = Flags("page", __doc__)
    flags.add_argument("--agents", type=at_least(1), default=200)
    flags.add_argument("--turnover", type=float, default=40.0, help="requests a second")
    flags.add_argument("--rate", type=float, default=2.0, help="tokens a second and request")
    flags.add_argument("--pictures", type=Path, help="a folder for pictures of the page")
    given = flags.parse_args()
    given.requests = given.agents * SLOTS
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    findings = asyncio.run(run(given))
    headings = ("seconds", "long tasks", "longest, ms", "99 %, ms", "longest with pauses, ms")
    columns = ("while", *headings, "main thread, %", "script, %")
    print_table("Tasks of the page's main thread: processor time", columns, map(row, findings))
    save("page", {"findings": [asdict(each) for each in findings]})


if __name__ == "__main__":
    main()
