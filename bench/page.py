"""Whether the dashboard stutters: `python -m bench.page`.

A balancer with many simulated agents under load, and the page in a headless Chromium. A task that
keeps the browser's main thread for more than 50 ms is a long one: it delays what a person does.
Other work on the machine makes tasks longer, so the thread's processor time is told as well. With
`--pictures FOLDER` the page is photographed in both lights and on a phone.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.async_api import Browser, Page, async_playwright
from rich.table import Table

from bench.arguments import at_least
from bench.balancer.sides import Cores, Starter
from bench.events import REQUESTS_PER_SOCKET, Load, started
from bench.store import save, wide_console

SLOTS = 4
SETTLE = 5.0
"""Seconds after the page was opened in which nothing is measured."""
WATCH = 10.0
SIZES = {"light": (1280, 900), "dark": (1280, 900), "phone": (390, 844)}

OBSERVE = """() => {
    window.longTasks = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
    }).observe({type: "longtask"});
}"""
TAKE = "() => window.longTasks.splice(0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was done, and the long tasks meanwhile, in milliseconds.

    `busy` and `script`: processor seconds of the main thread, and of scripts on it.
    """

    what: str
    seconds: float
    long_tasks: list[float]
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
    await page.evaluate(OBSERVE)
    tools = await page.context.new_cdp_session(page)
    await tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def spent() -> dict[str, float]:
        metrics = (await tools.send("Performance.getMetrics"))["metrics"]
        return {each["name"]: each["value"] for each in metrics}

    findings = []
    for what, act in ACTIONS.items():
        await page.evaluate(TAKE)
        before = await spent()
        begun = asyncio.get_running_loop().time()
        await act(page)
        seconds = asyncio.get_running_loop().time() - begun
        after = await spent()
        findings.append(
            Finding(
                what=what,
                seconds=seconds,
                long_tasks=await page.evaluate(TAKE),
                busy=after["TaskDuration"] - before["TaskDuration"],
                script=after["ScriptDuration"] - before["ScriptDuration"],
            )
        )
    return findings


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
        subprocess.check_output, ["scripts/install-chromium"], text=True
    )
    with ExitStack() as stack:
        starter = Starter(stack, Path(stack.enter_context(TemporaryDirectory())))
        _, addresses = await asyncio.to_thread(started, starter, cores, given)
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


def show(findings: list[Finding]) -> None:
    table = Table(title="Long tasks of the page's main thread")
    for heading in ("while", "seconds", "long tasks", "longest, ms", "main thread, %", "script, %"):
        table.add_column(heading, justify="right")
    for each in findings:
        table.add_row(
            each.what,
            f"{each.seconds:.1f}",
            str(len(each.long_tasks)),
            f"{max(each.long_tasks, default=0):.0f}",
            f"{each.busy / each.seconds * 100:.1f}",
            f"{each.script / each.seconds * 100:.1f}",
        )
    wide_console().print(table)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.page")
    parser.add_argument("--agents", type=at_least(1), default=200)
    parser.add_argument("--turnover", type=float, default=40.0, help="requests a second")
    parser.add_argument("--rate", type=float, default=2.0, help="tokens a second and request")
    parser.add_argument("--pictures", type=Path, help="a folder for pictures of the page")
    given = parser.parse_args(arguments)
    given.requests = given.agents * SLOTS
    if given.pictures is not None:
        given.pictures.mkdir(parents=True, exist_ok=True)
    return given


def main() -> None:
    given = parse(sys.argv[1:])
    findings = asyncio.run(run(given))
    show(findings)
    save("page", {"findings": [asdict(each) for each in findings]})


if __name__ == "__main__":
    main()
