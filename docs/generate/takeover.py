"""Makes the README's animation: `python -m docs.generate.takeover`.

The program asks the demo's fleet a question in the playground and kills the agent that answers.
The animation shows how the other agent continues the answer. The engines generate at reading
speed. The program needs a headless Chromium (`scripts/install-program chromium`).
"""

import asyncio
import io
import os
import re
import signal
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from PIL import Image, ImageDraw, ImageFont
from playwright.async_api import FloatRect, Page, async_playwright, expect

from arriero.agent.engine.pace import STEPS
from demo.run import Child, Demo

from .screenshot import ARGUMENTS, chromium

PICTURE = Path(__file__).parent.parent / "images" / "takeover.gif"
QUESTION = "How does photosynthesis work? Answer in two sentences."
MODEL = "smollm2"
STEPS_A_SECOND = "12"
WORDS_BEFORE = 16
"""Words of the answer that the page shows before the agent is killed."""
SECONDS_A_FRAME = 0.25
SECONDS_AFTER = 2.0
WIDTH, HEIGHT, STRIP = 640, 300, 34
PAGE_HEIGHT = 1400
COLOURS = 64


class Film:
    """Frames of a page, each with a line of a terminal below the page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.line = ""
        self.frames: list[Image.Image] = []
        self._font = ImageFont.load_default(size=16)

    async def record(self) -> None:
        """Take a frame each `SECONDS_A_FRAME`, until cancelled."""
        due = time.monotonic()
        while True:
            box = await self.page.get_by_test_id("bubble-user").last.bounding_box()
            top = 0.0 if box is None else box["y"] - 14
            clip: FloatRect = {"x": 0, "y": top, "width": WIDTH, "height": HEIGHT}
            self._add(await self.page.screenshot(clip=clip))
            due += SECONDS_A_FRAME
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _add(self, png: bytes) -> None:
        frame = Image.new("RGB", (WIDTH, HEIGHT + STRIP), "#10161d")
        frame.paste(Image.open(io.BytesIO(png)).convert("RGB"))
        ImageDraw.Draw(frame).text((14, HEIGHT + 7), self.line, fill="#d7e3ee", font=self._font)
        self.frames.append(frame)

    def save(self, path: Path) -> None:
        palette = self.frames[-1].quantize(COLOURS)
        first, *rest = [each.quantize(palette=palette, dither=0) for each in self.frames]
        duration = int(SECONDS_A_FRAME * 1000)
        first.save(path, save_all=True, append_images=rest, duration=duration, loop=0)


async def main() -> None:
    os.environ[STEPS] = STEPS_A_SECOND
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(tempfile.TemporaryDirectory(prefix="arriero-takeover-"))
        demo = Demo(Path(logs), MODEL)
        stack.push_async_callback(demo.stop)
        await demo.start()
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=await chromium(), args=ARGUMENTS)
        page = await browser.new_page(
            viewport={"width": WIDTH, "height": PAGE_HEIGHT}, color_scheme="light"
        )
        film = Film(page)
        await _act(demo, film)
        film.save(PICTURE)
        await browser.close()


async def _act(demo: Demo, film: Film) -> None:
    page = film.page
    await page.goto(f"{demo.management}/#/playground")
    await page.get_by_label("Temperature").first.fill("0")
    await page.get_by_test_id("prompt").fill(QUESTION)
    recording = asyncio.create_task(film.record())
    await page.get_by_test_id("prompt").press("Enter")
    answer = page.get_by_test_id("bubble-assistant").last
    await expect(answer).to_contain_text(re.compile(rf"(\S+\s+){{{WORDS_BEFORE}}}"), timeout=60_000)
    child = await _answering(demo)
    film.line = f"$ kill -9 {child.process.pid}    # {child.name}, which answers"
    os.killpg(child.process.pid, signal.SIGKILL)
    await expect(answer).to_have_attribute("data-finish", "stop", timeout=60_000)
    await asyncio.sleep(SECONDS_AFTER)
    recording.cancel()


async def _answering(demo: Demo) -> Child:
    """Return the agent that is generating the answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{demo.management}/api/v1/agents") as response,
    ):
        agents = (await response.json())["agents"]
    [busy] = [each["name"] for each in agents if each["slots"]["busy"]]
    [child] = [each for each in demo.children if each.name.endswith(busy)]
    return child


if __name__ == "__main__":
    asyncio.run(main())
