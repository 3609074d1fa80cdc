"""The dashboard in a browser, as the tests drive it."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from integration_tests.daemons import DEADLINE
from integration_tests.installed import installed

PATIENCE = 1000 * DEADLINE
"""Longest wait for the page to show something, in milliseconds."""


class Served(Protocol):
    """What serves the page: real daemons, or what stands in for them."""

    @property
    def management(self) -> str:
        """The address of the management port."""


class Dashboard:
    """The page, and the errors on its console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _on_console(self, message: Any) -> None:
        # A violation of the Content-Security-Policy is an error here, too.
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    async def open(self, served: Served, page: str = "fleet") -> None:
        await self.page.goto(f"{served.management}/#/{page}")
        await expect(self.part("connection")).to_have_attribute("data-state", "live")

    def part(self, name: str) -> Locator:
        return self.page.get_by_test_id(name)

    async def turn_to(self, page: str) -> None:
        """Another page, once it is shown: a click ends before its address has changed."""
        link = self.page.get_by_role("navigation").get_by_role("link", name=page)
        await link.click()
        await expect(link).to_have_attribute("aria-current", "page")

    async def ask(self, text: str) -> None:
        await self.part("prompt").fill(text)
        await self.part("prompt").press("Enter")

    async def settle(self, finish: str | re.Pattern[str]) -> Locator:
        """The last answer, once it has ended so."""
        answer = self.part("bubble-assistant").last
        await expect(answer).to_have_attribute("data-finish", finish)
        return answer


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of a process."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=await asyncio.to_thread(installed, "chromium"), args=arguments
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def dashboard(browser: Browser) -> AsyncIterator[Dashboard]:
    """In a window that knows nothing of what others did.

    It asks for little motion: a dot that breathes takes a third of a core where no device draws it.
    """
    page = await browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    yield Dashboard(page)
    await page.context.close()
