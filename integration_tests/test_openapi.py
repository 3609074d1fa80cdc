"""Schemathesis asks the real daemons whatever the OpenAPI documents allow, and what they do not.

Answers must be of a documented status, of a documented type, and as their schemas say; nothing may
end with a 500, and what a document rules out must be refused.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from integration_tests.daemons import Fleet, started_fleet
from tests.balancer import documents

DOCUMENTS = {"inference": documents.inference(), "management": documents.management()}
CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
NOT_TO_BE_HAD = 501
"""The only status of 500 or above that a request alone can cause."""

MODEL = "arriero-demo"
NUM_CASES = 10
NUM_TRIES = 8
"""How often a case is asked again, without the field that its error names."""
TIMEOUT = 60.0
PATIENT_MS = 60_000
"""Milliseconds: the shortest deadline of a request that is asked for."""

SHORT = 4
"""Tokens: longer answers would only take longer."""

ENDLESS = {"/api/v1/events"}
"""Paths whose answers go on for as long as somebody listens."""

CLOSING = {"/api/v1/keys"}
"""Would make the first key, and so close the fleet to all other tests; `test_access` asks it."""

NEVER_WELL = {
    "/api/v1/agent-socket",
    "/api/v1/agents/{id}",
    "/api/v1/agents/{id}/devices",
    "/api/v1/agents/{id}/drain",
    "/api/v1/agents/{id}/log",
    "/api/v1/agents/{id}/log/events",
    "/api/v1/agents/{id}/reload",
    "/api/v1/agents/{id}/resume",
    "/api/v1/batches/{id}/cancel",
    "/api/v1/hosts/{name}",
    "/api/v1/keys/{name}",
    "/api/v1/keys/{name}/rotate",
    "/api/v1/models/fit",
    "/api/v1/requests/{id}",
    "/api/v1/session",
    "/api/v1/socket",
    "/dashboard/{name}",
}
"""Paths that need a name, an id, a key or a source that nobody guesses, or another model."""

NATIVE = {"/api/v1/generate", "/api/v1/generate_batch", "/api/v1/count_tokens"}
DESIRED_STATE = "/api/v1/desired-state"
"""Takes more than its schema says: durations and sizes as people write them."""
QUESTION = "What is a slot?"

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATIONS = [
    (port, method.upper(), path, mode)
    for port, document in DOCUMENTS.items()
    for path, methods in document["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    if path not in ENDLESS | CLOSING
    if mode is GenerationMode.POSITIVE or "requestBody" in operation
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked_fleet() -> AsyncIterator[Fleet]:
    """A fleet of their own: some operations change it."""
    async with started_fleet(context_size=2048) as fleet:
        yield fleet


@pytest.mark.parametrize("port", DOCUMENTS)
async def test_the_document_is_served(asked_fleet: Fleet, port: str) -> None:
    async with asked_fleet.http.get(f"{getattr(asked_fleet, port)}/openapi.json") as response:
        served = await response.json()
    assert served == DOCUMENTS[port]


@pytest.mark.parametrize(("port", "method", "path", "mode"), OPERATIONS)
async def test_answers_are_as_documented(
    asked_fleet: Fleet, port: str, method: str, path: str, mode: GenerationMode
) -> None:
    url = getattr(asked_fleet, port)
    operation = schemathesis.openapi.from_dict(DOCUMENTS[port])[path][method]
    statuses = await asyncio.to_thread(ask_anything, url, operation, mode)
    if mode is GenerationMode.POSITIVE and path not in NEVER_WELL and 200 not in statuses:
        statuses |= await asyncio.to_thread(ask_anything, url, operation, mode, is_anew=True)
    if path not in NEVER_WELL and not (path == DESIRED_STATE and mode is GenerationMode.NEGATIVE):
        assert (200 in statuses) == (mode is GenerationMode.POSITIVE)
    await asked_fleet.until_idle()


def ask_anything(
    url: str, operation: APIOperation, mode: GenerationMode, *, is_anew: bool = False
) -> set[int]:
    """Blocks until all cases were asked; the statuses that came. Raises what a check found.

    Many fields make it likely that each case breaks a rule that no schema tells: where all did,
    four times as many are drawn anew.
    """
    statuses: set[int] = set()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=4 * NUM_CASES if is_anew else NUM_CASES,
        derandomize=not is_anew,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        make_answerable(case.body)
        if mode is GenerationMode.POSITIVE:
            give_query(operation.path, case.body)
        for _ in range(NUM_TRIES):
            response = case.call(base_url=url, timeout=TIMEOUT)
            status = response.status_code
            statuses.add(status)
            assert status < 500 or status == NOT_TO_BE_HAD, response.text
            case.validate_response(response, checks=CHECKS)
            is_over = status != 400 or mode is GenerationMode.NEGATIVE
            if is_over or not leave_out(case.body, response.text):
                break

    ask()
    return statuses


def make_answerable(body: Any) -> None:
    """Asks for a model that is there, and for short answers: the time of long ones shows nothing.

    Nor does it show anything what a busy machine cannot answer within milliseconds.

    What was wrong with `body` stays so.
    """
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str) and body["model"]:
        body["model"] = MODEL
    if type(body.get("max_tokens")) is int and body["max_tokens"] > SHORT:
        body["max_tokens"] = SHORT
    if type(body.get("deadline_ms")) is int and 0 < body["deadline_ms"] < PATIENT_MS:
        body["deadline_ms"] = PATIENT_MS
    for request in body.get("requests", ()) if isinstance(body.get("requests"), list) else ():
        make_answerable(request)


def give_query(path: str, body: Any) -> None:
    """Adds an input, which the schema does not require in any one form, and a small limit."""
    if path == DESIRED_STATE and isinstance(body, dict):
        body["models"] = []  # agents would load what is wished for
    if path in NATIVE:
        for request in body.get("requests", [body]):
            request["max_tokens"] = SHORT
            if request.get("messages") is None:
                request["prompt"] = request.get("prompt") or QUESTION


def leave_out(body: Any, error: str) -> bool:
    """Removes from `body` the first of its fields that `error` names; whether there was one.

    Many fields exclude each other, which no schema says.
    """
    if not isinstance(body, dict):
        return False
    for number, name in re.findall(r"`(?:requests\[(\d+)\]\.)?(\w+)", error):
        part = body["requests"][int(number)] if number else body
        if name in part:
            del part[name]
            return True
    return False
