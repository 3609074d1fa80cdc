"""The port to model files: what a failed fetch becomes for operators."""

from arriero.agent.models.port import FETCH_CODES, FetchError
from arriero.shared.messages import Issue


def test_a_failed_fetch_is_an_issue_with_what_to_do():
    error = FetchError("gated", "the hub refuses org/repo", "set HF_TOKEN")

    assert error.issue == Issue(
        code="gated", message="the hub refuses org/repo", hint="set HF_TOKEN"
    )
    assert str(error) == "the hub refuses org/repo"
    assert error.code in FETCH_CODES
