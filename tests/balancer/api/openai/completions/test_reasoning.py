"""Efforts of reasoning in neutral words."""

from typing import Any

import pytest

from arriero.balancer.api.openai.completions.reasoning import Effort, reasoning_fields


@pytest.mark.parametrize(
    ("effort", "thinking", "variables"),
    [
        (None, None, None),
        ("none", False, None),
        ("minimal", True, {"reasoning_effort": "minimal"}),
        ("high", True, {"reasoning_effort": "high"}),
    ],
)
def test_efforts(effort: Effort | None, thinking: bool | None, variables: Any) -> None:
    assert reasoning_fields(effort) == {"thinking": thinking, "chat_template_kwargs": variables}


def test_the_clients_own_variables_go_before() -> None:
    own = {"reasoning_effort": "low", "enable_thinking": False}
    assert reasoning_fields("high", own)["chat_template_kwargs"] == own
    assert reasoning_fields(None, {})["chat_template_kwargs"] is None
