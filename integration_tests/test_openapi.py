"""Schemathesis asks the real daemons whatever the OpenAPI document allows, and what it does not.

Answers must be of a documented status, of a documented type, and as their schemas say; nothing may
end with a 500, and what the document rules out must be refused.
"""

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from arriero.balancer.doors.inference_api import inference_document
from integration_tests.daemons import Fleet

DOCUMENT = inference_document("0")
CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
NOT_TO_BE_HAD = 501
"""The one status of 500 and above that a request alone can lead to."""

MODEL = "arriero-demo"
NUM_CASES = 30
TIMEOUT = 20.0

SHORT = {"max_tokens": 4, "max_completion_tokens": 4, "max_output_tokens": 4, "n": 2}
"""Larger values than these would only take longer."""

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATIONS = [
    (method.upper(), path, mode)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or "requestBody" in operation
]


async def test_the_document_is_served(shared_fleet: Fleet) -> None:
    async with shared_fleet.http.get(f"{shared_fleet.inference}/openapi.json") as response:
        served = await response.json()
    assert served == inference_document(served["info"]["version"])


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
async def test_answers_are_as_documented(
    shared_fleet: Fleet, method: str, path: str, mode: GenerationMode
) -> None:
    await asyncio.to_thread(ask_anything, shared_fleet.inference, method, path, mode)
    await shared_fleet.until_idle()


def ask_anything(url: str, method: str, path: str, mode: GenerationMode) -> None:
    """Blocks until all cases were asked. Raises what a check found."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    operation = schema[path][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=NUM_CASES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        make_answerable(case.body)
        response = case.call(base_url=url, timeout=TIMEOUT)
        assert response.status_code < 500 or response.status_code == NOT_TO_BE_HAD, response.text
        case.validate_response(response, checks=CHECKS)

    ask()


def make_answerable(body: Any) -> None:
    """Asks for a model that is there, and for short answers: the time of long ones shows nothing.

    What was wrong with `body` stays so.
    """
    if not isinstance(body, dict):
        return
    if isinstance(body.get("model"), str):
        body["model"] = MODEL
    for name, most in SHORT.items():
        if type(body.get(name)) is int and body[name] > most:
            body[name] = most
    for request in body.get("requests", ()) if isinstance(body.get("requests"), list) else ():
        make_answerable(request)
