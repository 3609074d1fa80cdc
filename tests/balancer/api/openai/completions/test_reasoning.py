"""Efforts of reasoning in neutral words."""

from typing import Any

import pytest

from arriero.balancer.api.openai.completions.reasoning import (
    Effort,
    reasoning_fields,
    with_reasoning,
)


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


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ({"reasoning": "hm"}, {"reasoning_content": "hm"}),
        ({"thinking": "hm"}, {"reasoning_content": "hm"}),
        ({"reasoning": "hm", "reasoning_content": "hm!"}, {"reasoning_content": "hm!"}),
        ({"reasoning": "hm", "reasoning_content": None}, {"reasoning_content": "hm"}),
        ({"reasoning": "", "thinking": "hm"}, {"reasoning_content": "hm"}),
        ({"reasoning": ""}, {"reasoning_content": None}),
        ({"reasoning": {"effort": "low"}}, {"reasoning": {"effort": "low"}}),
        ({}, {}),
    ],
)
def test_reasoning_that_clients_send_back(sent: dict[str, Any], shown: dict[str, Any]) -> None:
    said = {"role": "assistant", "content": "x"}
    assert with_reasoning({**said, **sent}) == {**said, **shown}


def test_only_an_assistant_reasons() -> None:
    assert with_reasoning({"role": "user", "reasoning": "x"}) == {"role": "user", "reasoning": "x"}
