"""Pictures in the playground: chosen, dropped, drawn small, sent, and gone after a reload."""

import base64
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from playwright.async_api import FilePayload, expect

from integration_tests.dashboard import Dashboard
from integration_tests.fake_management import MODEL, FakeManagement, agent
from tests.agent.engine.llama.projectors import png

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),  # the first test may have to install the browser
]

SMALL, LARGE = png(120, 40), png(2100, 20, seed=1)
ANSWER = {"event": "token", "id": "r", "kind": "content", "text": "a llama"}
DONE = {
    "event": "done",
    "id": "r",
    "finish_reason": "stop",
    "usage": {"prompt_tokens": 9, "cached_tokens": 0, "completion_tokens": 1},
    "timings": {"queue_ms": 0.0, "first_token_ms": 20.0, "decode_tokens_per_second": 50.0},
    "agent": "host-001",
}
DROP = """(text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
    return transfer;
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def management() -> AsyncIterator[FakeManagement]:
    """Of a fleet that reads pictures."""
    fake = FakeManagement()
    fake.agents = [agent(1, model=MODEL | {"tasks": ["generate", "vision"]})]
    fake.events = [ANSWER, DONE]
    server = TestServer(fake.app(), host="127.0.0.1", shutdown_timeout=1)
    await server.start_server()
    fake.management = str(server.make_url("")).rstrip("/")
    yield fake
    await server.close()


def file(data: bytes, name: str = "one.png", kind: str = "image/png") -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": data}


async def test_pictures_go_with_a_question(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    await dashboard.open(management, "playground")
    choose, tray = dashboard.part("picture-file"), dashboard.part("tray")
    await expect(dashboard.part("add-picture")).to_be_visible()
    await choose.set_input_files(file(b"%PDF", "two.pdf", "application/pdf"))
    await expect(dashboard.part("picture-problem")).to_contain_text("two.pdf: models read PNG")
    await choose.set_input_files(file(b"no picture"))
    await expect(dashboard.part("picture-problem")).to_contain_text("cannot be read")
    await choose.set_input_files([file(SMALL), file(LARGE, "large.png")])
    await expect(tray.get_by_test_id("picture")).to_have_count(2)
    await expect(dashboard.part("picture-problem")).to_be_empty()
    await dashboard.part("as-curl").click()
    await expect(dashboard.part("snippet-text")).to_contain_text("data:image/png;base64,…")
    await tray.get_by_role("button", name="Remove").first.click()
    dropped = await dashboard.page.evaluate_handle(DROP, base64.b64encode(SMALL).decode())
    await dashboard.part("chat").dispatch_event("drop", {"dataTransfer": dropped})
    await expect(tray.get_by_role("img", name="Picture dropped.png")).to_be_visible()

    await dashboard.ask("what is it?")
    await dashboard.settle("stop")
    await expect(tray).to_be_hidden()
    asked = dashboard.part("bubble-user")
    await expect(asked.get_by_test_id("picture")).to_have_count(2)
    size = await asked.get_by_test_id("picture").last.evaluate("(it) => [it.width, it.height]")
    assert size == [120, 40], "it is drawn as it is, or smaller"
    ((message,),) = [body["messages"] for body in management.generated]
    large, small, words = message["content"]
    assert large["image_url"]["url"].startswith("data:image/jpeg;base64,"), "scaled down"
    assert small["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(SMALL).decode()}"
    assert words == {"type": "text", "text": "what is it?"}
    assert dashboard.complaints == []


async def test_a_picture_alone_is_a_question_and_is_gone_after_a_reload(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    await dashboard.open(management, "playground")
    await dashboard.part("picture-file").set_input_files(file(SMALL))
    await expect(dashboard.part("tray").get_by_test_id("picture")).to_have_count(1)
    await dashboard.part("send").click()
    await dashboard.settle("stop")
    await dashboard.page.get_by_role("button", name="Regenerate").click()
    await dashboard.settle("stop")
    first, second = [json.dumps(body["messages"]) for body in management.generated]
    assert first == second
    await expect(dashboard.part("chats")).to_contain_text("A picture")

    await dashboard.page.reload()
    await expect(dashboard.part("bubble-user")).to_contain_text("no longer here")
    await dashboard.ask("and now?")
    await dashboard.settle("stop")
    assert [each["content"] for each in management.generated[-1]["messages"]][-1] == "and now?"
    assert "image_url" not in json.dumps(management.generated[-1])


async def test_where_no_model_reads_pictures_none_is_taken(
    management: FakeManagement, dashboard: Dashboard
) -> None:
    management.agents = [agent(1)]
    await dashboard.open(management, "playground")
    await expect(dashboard.part("add-picture")).to_be_hidden()
    await dashboard.part("picture-file").set_input_files(file(SMALL))
    await expect(dashboard.part("picture-problem")).to_contain_text("No model here")
    await expect(dashboard.part("tray")).to_be_hidden()
