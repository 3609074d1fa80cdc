"""The tests that the SDKs' own source archives hold of the calls that the fleet serves."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from client_tests.program import programs
from integration_tests.daemons import Fleet
from suite_tests.harness import judge, run

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1800)]

FILES = {
    "openai": (
        "chat/test_completions.py",
        "test_completions.py",
        "test_responses.py",
        "test_embeddings.py",
        "test_models.py",
    ),
    "anthropic": ("test_messages.py", "test_models.py"),
}

_NOT_KEPT = "chats are not kept: a response is"
_NO_INPUT = "nothing is asked, which only a mock of the API answers"
_UNKNOWN = "the response was never made, which only a mock of the API finds"
_NO_SCHEMA = "a tool's schema has `bar` in place of a property's schema"
_BASE64 = "the SDK asks for base64, and strict validation wants a list of numbers"

MAY_FAIL = {
    "openai": {
        "chat.test_completions test_method_create_with_all_params_*": "has `functions` and `tools`",
        **{
            f"chat.test_completions test_{how}_{what}": _NOT_KEPT
            for how in ("method", "raw_response", "streaming_response")
            for what in ("retrieve", "update", "list", "delete")
        },
        "chat.test_completions test_method_list_with_all_params": _NOT_KEPT,
        "test_completions test_method_create_with_all_params_*": "`logit_bias` names no token",
        "test_responses test_method_create_with_all_params_*": "there are no access programs here",
        **{
            f"test_responses test_{how}_create_overload_*": _NO_INPUT
            for how in ("method", "raw_response", "streaming_response")
        },
        **{
            f"test_responses test_{how}_{what}*": why
            for how in ("method", "raw_response", "streaming_response")
            for what, why in (
                *((what, _UNKNOWN) for what in ("retrieve", "delete", "cancel")),
                ("compact", "/v1/responses/compact is not supported"),
            )
        },
        **{
            f"test_embeddings test_{how}_create": _BASE64
            for how in ("method", "raw_response", "streaming_response")
        },
        **{
            f"test_models test_{how}_delete": "models are the operator's to remove"
            for how in ("method", "raw_response", "streaming_response")
        },
    },
    "anthropic": {
        "test_messages test_method_create_with_all_params_*": _NO_SCHEMA,
        "test_messages test_deprecated_model_warning": "the fleet has none of the withdrawn models",
    },
}
"""Why tests of each SDK fail."""


@pytest.mark.parametrize("sdk", FILES)
async def test_answers_and_streams_are_of_the_sdks_types(
    serving: Fleet, tmp_path: Path, sdk: str
) -> None:
    """With strict validation, by its clients that block and by those that do not."""
    [folder] = programs("sdks").parent.glob(f"sources/{sdk}-*/")
    report = tmp_path / "report.xml"
    base = {"openai": f"{serving.inference}/v1", "anthropic": serving.inference}
    files = [folder / "tests" / "api_resources" / file for file in FILES[sdk]]
    await run(
        *("sdks", "python", "-m", "pytest", "--quiet", "--rootdir", folder, "-k", "strict"),
        *("--numprocesses", "4", "-p", "no:cacheprovider", f"--junitxml={report}", *files),
        env={"TEST_API_BASE_URL": base[sdk], "PYTHONPATH": str(folder)},
    )
    found: dict[str, str | None] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.attrib["classname"].removeprefix("tests.api_resources.").rpartition(".")[0]
        name = f"{file} {case.attrib['name'].partition('[')[0]}"
        wrong = case.find("failure") if case.find("error") is None else case.find("error")
        found[name] = found.get(name) or (None if wrong is None else wrong.attrib["message"])
    judge(found, MAY_FAIL[sdk])
