"""llm-comply: requests of each vendor's API, and their answers against the vendors' documents."""

import asyncio
import json
from typing import Any

import pytest

from client_tests.program import programs
from integration_tests.daemons import Fleet
from suite_tests.judging import judge

pytestmark = pytest.mark.asyncio(loop_scope="session")

_NO_PROJECTOR = "the demo model takes no pictures"
_OTHER_MODELS = "it is skipped for models that are not named like the vendor's own"
_HAS_DEFAULT = "a request without `model` is served by one of the fleet's models"

MAY_FAIL = {
    "openai-chat": {
        "chat-error-handling": _HAS_DEFAULT,
        "chat-image-input": _NO_PROJECTOR,
        "chat-reasoning-summary": _OTHER_MODELS,
    },
    "open-responses": {
        "error-handling": _HAS_DEFAULT,
        "image-input": _NO_PROJECTOR,
        "reasoning-summary": _OTHER_MODELS,
    },
    "anthropic": {
        "anth-image-input": _NO_PROJECTOR,
        "anth-thinking-display": _OTHER_MODELS,
    },
}
"""Why checks of each API fail."""

_HEADERS = {
    "anthropic": ("--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01")
}


async def run(fleet: Fleet, api: str) -> list[dict[str, Any]]:
    """What it says of each check."""
    process = await asyncio.create_subprocess_exec(
        programs("llm-comply") / "llm-comply",
        *("--format", api, "--json", "-u", f"{fleet.inference}/v1"),
        *("-m", "arriero-demo", "-k", "none", *_HEADERS.get(api, ())),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    results: list[dict[str, Any]] = json.loads(output)["results"]
    return results


@pytest.mark.parametrize("api", MAY_FAIL)
async def test_answers_are_as_its_documents_say(serving: Fleet, api: str) -> None:
    found = {
        each["id"]: None
        if each["status"] == "passed"
        else f"{each['status']}: {'; '.join(each.get('errors') or each.get('warnings') or ())}"
        for each in await run(serving, api)
    }
    judge(found, MAY_FAIL[api])
