"""llm-comply: requests of each vendor's API, and their answers against the vendors' documents."""

import json
from collections.abc import Mapping

import pytest

from integration_tests.daemons import Fleet
from suite_tests.harness import SMOLLM2, judge, run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(900)]

_NO_PROJECTOR = "the models take no pictures"
_HAS_DEFAULT = "a request without `model` is served by one of the fleet's models"
_DOES_NOT_REASON = "SmolLM2 does not reason, and the suite asks no model of such a name to do it"

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

REASONS = {"openai-chat": "gpt-5", "open-responses": "gpt-5", "anthropic": "claude-sonnet-4"}
"""Aliases of the demo model: the suite asks models of such names to reason."""

REASONING = {
    "openai-chat": "chat-reasoning-summary",
    "open-responses": "reasoning-summary",
    "anthropic": "anth-thinking-display",
}
"""The check of each API for which a model has to reason."""

_HEADERS = {
    "anthropic": ("--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01")
}


async def findings(fleet: Fleet, api: str, model: str) -> Mapping[str, str | None]:
    """What it says is wrong about each check."""
    _, output = await run(
        *("llm-comply", "llm-comply", "--format", api, "--json", "-u", f"{fleet.inference}/v1"),
        *("-m", model, "-k", "none", *_HEADERS.get(api, ())),
    )
    return {
        each["id"]: None
        if each["status"] == "passed"
        else f"{each['status']}: {'; '.join(each.get('errors') or each.get('warnings') or ())}"
        for each in json.loads(output)["results"]
    }


@pytest.mark.parametrize("api", MAY_FAIL)
async def test_answers_are_as_its_documents_say(serving: Fleet, api: str) -> None:
    may_fail = MAY_FAIL[api] | {REASONING[api]: _DOES_NOT_REASON}
    judge(await findings(serving, api, SMOLLM2), may_fail)


@pytest.mark.parametrize("api", MAY_FAIL)
async def test_so_are_those_of_a_model_that_reasons(serving: Fleet, api: str) -> None:
    judge(await findings(serving, api, REASONS[api]), MAY_FAIL[api])
