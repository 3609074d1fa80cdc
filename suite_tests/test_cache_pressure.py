"""cache-pressure: a prompt is not read again if a client leaves in the middle of its answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from client_tests.recorder import Recorder
from integration_tests.daemons import Fleet
from suite_tests.conftest import CONTEXT_SIZE
from suite_tests.harness import DEMO, SMOLLM2, judge, run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

NUM_TOKENS = 2000
"""Tokens of a prompt, as the suite estimates them: at least 0.95 of the next one must be cached."""

NUM_STREAMED = {SMOLLM2: 40, DEMO: 10}
"""Tokens after which the client leaves. The demo model's are reasoning, and few."""


def endless(_path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The suite draws tokens, and a run fails if its answer ends before the client leaves."""
    return body | {"ignore_eos": True}


@pytest.mark.parametrize("model", NUM_STREAMED)
@pytest.mark.parametrize("mode", ["branch", "continuation"])
async def test_a_prefix_survives_an_abort(
    serving: Fleet, tmp_path: Path, model: str, mode: str
) -> None:
    """`branch`: a new question follows the cut answer. `continuation`: the answer goes on."""
    output = tmp_path / "records.json"
    numbers = {"context-tokens": NUM_TOKENS, "max-context": CONTEXT_SIZE, "max-tokens": 400}
    numbers |= {"thinking-tokens": NUM_STREAMED[model], "runs": 2}
    front = Recorder(serving.inference)
    front.edit = endless
    await front.start()
    try:
        await run(
            *("cache-pressure", "abort-sim", "--base-url", f"{front.url}/v1"),
            *("--model", model, "--reprompt-mode", mode, "--output", output),
            *(word for name, number in numbers.items() for word in (f"--{name}", str(number))),
        )
    finally:
        await front.close()
    records = json.loads(output.read_text())["records"]
    judge({f"run {each['run']}": None if each["ok"] else str(each) for each in records}, {})
