"""open-webui in a browser: a question about a document, which our embeddings found."""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio
from playwright.async_api import Page, async_playwright, expect

from client_tests.program import Desk
from client_tests.recorder import Exchange
from client_tests.service import service
from integration_tests.daemons import until
from integration_tests.installed import installed

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 60_000
"""Longest wait for the page to show something, in milliseconds."""

DOCUMENT = """# Slots

A slot is a place for one running sequence on an agent.

# Llamas

A llama carries loads over mountains.
"""


def settings(desk: Desk) -> dict[str, str]:
    """Those of docs/clients/open-webui.md, and what keeps it from reaching out."""
    url = f"{desk.arriero.url}/v1"
    ours = {
        "OPENAI_API_BASE_URL": url,
        "OPENAI_API_KEY": "unused",
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_EMBEDDING_MODEL": "arriero-demo",
        "RAG_OPENAI_API_BASE_URL": url,
        "RAG_OPENAI_API_KEY": "unused",
        "DEFAULT_MODEL_METADATA": '{"capabilities": {"builtin_tools": false}}',
        "DEFAULT_MODEL_PARAMS": '{"temperature": 0}',
        "ENABLE_OLLAMA_API": "False",
    }
    quiet = {"ANONYMIZED_TELEMETRY": "False", "DO_NOT_TRACK": "true", "OFFLINE_MODE": "True"}
    alone = {"WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "unused", "DATA_DIR": str(desk.home)}
    return ours | quiet | alone


@pytest_asyncio.fixture(loop_scope="module")
async def page() -> AsyncIterator[Page]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=await asyncio.to_thread(installed, "chromium"), args=arguments
        )
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        yield page
        await browser.close()


async def test_a_question_about_a_document(desk: Desk, page: Page) -> None:
    document = desk.work / "slots.md"
    document.write_text(DOCUMENT)
    env = settings(desk)
    async with service(desk, "open-webui", "open-webui", "serve", health="/health", env=env) as url:
        await page.goto(url)
        await page.get_by_role("button", name="Okay, Let's Go!").click()
        await page.locator("input[type=file]").first.set_input_files(document)
        await expect(page.get_by_text("slots.md")).to_be_visible(timeout=PATIENCE)
        await page.locator("#chat-input").click()
        await page.keyboard.type("What is a slot?")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Toggle 1 source")).to_be_visible(
            timeout=PATIENCE
        )
        await until(partial(answered, desk), deadline=PATIENCE / 1000)
        [asked] = chats(desk)
        deltas = [choice["delta"] for each in asked.events for choice in each["choices"]]
        said = " ".join("".join(delta.get("content") or "" for delta in deltas).split())
        assert said
        await expect(page.locator(".chat-assistant").last).to_contain_text(said, timeout=PATIENCE)
    embedded = [each.json["input"] for each in desk.arriero.of("/v1/embeddings")]
    assert any("A llama carries loads" in str(each) for each in embedded)
    # Requests for a title and tags may still wait when the page is closed; they have no status.
    assert {each.status for each in desk.arriero.exchanges if each.status} == {200}
    prompt = str(asked.json["messages"])
    assert '<source id="1" name="slots.md"' in prompt
    assert "A slot is a place for one running sequence" in prompt


def chats(desk: Desk) -> list[Exchange]:
    """The answers of the conversation, without those that make its title and tags."""
    return [each for each in desk.arriero.of("/v1/chat/completions") if each.json["stream"]]


async def answered(desk: Desk) -> bool:
    return any(b"[DONE]" in each.answer for each in chats(desk))
