"""llm-comply: requests of each vendor's API, and their answers against the vendors' documents."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from client_tests.program import programs
from integration_tests.daemons import MODEL, Fleet
from suite_tests.judging import judge

pytestmark = pytest.mark.asyncio(loop_scope="session")

_NO_PROJECTOR = "the demo model takes no pictures"
_HAS_DEFAULT = "a request without `model` is served by one of the fleet's models"

MAY_FAIL = {
    "openai-chat": {
        "chat-error-handling": _HAS_DEFAULT,
        "chat-image-input": _NO_PROJECTOR,
    },
    "open-responses": {
        "error-handling": _HAS_DEFAULT,
        "image-input": _NO_PROJECTOR,
    },
    "anthropic": {
        "anth-image-input": _NO_PROJECTOR,
    },
}
"""Why checks of each API fail."""

MODELS = {"openai-chat": "gpt-5", "open-responses": "gpt-5", "anthropic": "claude-sonnet-4"}
"""What the demo model is called: models without such a name are not asked to reason."""

_HEADERS = {
    "anthropic": ("--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01")
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def named(serving: Fleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """The fleet with agents whose models have the names of `MODELS`."""
    folder = tmp_path_factory.mktemp("models")
    async with AsyncExitStack() as stack:
        fleet = serving.guest(stack)
        for name in sorted({*MODELS.values()}):
            path = folder / f"{name}.gguf"
            path.symlink_to(MODEL)
            await fleet.start_agent(model=path, context_size=8192)
        yield fleet


async def run(fleet: Fleet, api: str) -> list[dict[str, Any]]:
    """What it says of each check."""
    process = await asyncio.create_subprocess_exec(
        programs("llm-comply") / "llm-comply",
        *("--format", api, "--json", "-u", f"{fleet.inference}/v1"),
        *("-m", MODELS[api], "-k", "none", *_HEADERS.get(api, ())),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    results: list[dict[str, Any]] = json.loads(output)["results"]
    return results


@pytest.mark.parametrize("api", MAY_FAIL)
async def test_answers_are_as_its_documents_say(named: Fleet, api: str) -> None:
    found = {
        each["id"]: None
        if each["status"] == "passed"
        else f"{each['status']}: {'; '.join(each.get('errors') or each.get('warnings') or ())}"
        for each in await run(named, api)
    }
    judge(found, MAY_FAIL[api])
