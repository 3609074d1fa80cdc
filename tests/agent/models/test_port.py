"""The port to model files: what a failed fetch becomes for operators."""

from pathlib import Path

from arriero.agent.models.port import FETCH_CODES, FetchError
from arriero.shared.messages import Issue


def test_a_failed_fetch_is_an_issue_with_what_to_do() -> None:
    error = FetchError("gated", "the hub refuses org/repo", "set HF_TOKEN")

    assert error.issue == Issue(
        code="gated", message="the hub refuses org/repo", hint="set HF_TOKEN"
    )
    assert str(error) == "the hub refuses org/repo"
    assert error.code in FETCH_CODES


def test_the_docs_say_what_to_do_about_each_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert rows >= FETCH_CODES
