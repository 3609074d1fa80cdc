"""Takes the README's picture of the dashboard: `python -m docs.generate.screenshot`.

The program starts the demo's fleet, keeps the fleet busy and asks a question in the playground.
The picture is taken in a headless Chromium (`scripts/install-program chromium`).
"""

import asyncio
import itertools
import os
import subprocess
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from playwright.async_api import async_playwright, expect

from demo.run import Demo

PICTURE = Path(__file__).parent.parent / "images" / "dashboard.png"
QUESTIONS = ("What is a slot?", "What does the balancer do?", "What is an agent?")
NUM_STREAMS = 9
"""One more stream than the fleet has slots, so that one request waits."""
WARM_UP = 25.0
"""Seconds under load before the picture, so that the charts have data."""

ARGUMENTS = ["--no-sandbox"] if os.geteuid() == 0 else []
"""Arguments for Chromium, which refuses to run as root in its sandbox."""


async def chromium() -> str:
    """Return the path of a headless Chromium, which is installed if missing."""
    command = ["scripts/install-program", "chromium"]
    return (await asyncio.to_thread(subprocess.check_output, command, text=True)).strip()


async def main() -> None:
    program = await chromium()
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(tempfile.TemporaryDirectory(prefix="arriero-screenshot-"))
        demo = Demo(Path(logs))
        stack.push_async_callback(demo.stop)
        await demo.start()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(_ask(demo, session, each)) for each in range(NUM_STREAMS)]
            await _photograph(demo, program)
            for stream in streams:
                stream.cancel()


async def _ask(demo: Demo, session: aiohttp.ClientSession, number: int) -> None:
    """Ask for one answer after another, with different lengths, until the fleet stops."""
    for turn in itertools.count(number):
        content = QUESTIONS[turn % len(QUESTIONS)]
        body = {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 80 + 60 * (turn % 7),
            "ignore_eos": True,
        }
        async with session.post(f"{demo.inference}/api/v1/generate", json=body) as response:
            await response.read()


async def _photograph(demo: Demo, program: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        page = await browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
        await page.goto(f"{demo.management}/#/playground")
        await page.get_by_test_id("prompt").fill("What is continuous batching?")
        await page.get_by_test_id("prompt").press("Enter")
        answer = page.get_by_test_id("bubble-assistant").last
        await expect(answer).to_have_attribute("data-finish", "stop", timeout=60_000)
        await page.goto(f"{demo.management}/#/fleet")
        await asyncio.sleep(WARM_UP)
        PICTURE.parent.mkdir(exist_ok=True)
        await page.screenshot(path=PICTURE)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
