from dataclasses import replace
from typing import Any

import pytest

from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    NamedTool,
    goes_on_anywhere,
    goes_on_by_text,
)

USER = ChatMessage(role="user", content="hi")
ANSWER = ChatMessage(role="assistant", content="He")
CHAT = GenerateRequest(messages=(USER,))
TEXT = GenerateRequest(prompt="Once")
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
GRAMMAR = GbnfGrammar(type="gbnf", grammar='root ::= "a"')


@pytest.mark.parametrize(
    "request_",
    [
        CHAT,
        TEXT,
        replace(CHAT, tools=(TOOL,)),
        replace(CHAT, tools=(TOOL,), tool_choice="none"),
        replace(CHAT, logprobs=True, stop=("a",)),
        replace(CHAT, messages=(USER, ANSWER), continue_final_message=True),
    ],
)
def test_plain_text_goes_on(request_: GenerateRequest) -> None:
    assert goes_on_by_text(request_)


@pytest.mark.parametrize(
    "request_",
    [
        GenerateRequest(prompt=(1, 2)),
        replace(TEXT, suffix="end"),
        replace(CHAT, grammar=GRAMMAR),
        replace(CHAT, tools=(TOOL,), tool_choice="required"),
        replace(CHAT, tools=(TOOL,), tool_choice=NamedTool(name="f")),
        replace(CHAT, add_generation_prompt=False),
        replace(CHAT, messages=(USER, ANSWER)),
    ],
)
def test_what_has_no_place_for_a_text_does_not(request_: GenerateRequest) -> None:
    assert not goes_on_by_text(request_)


def test_only_a_server_of_the_same_kind_goes_on_with_log_probabilities() -> None:
    assert goes_on_anywhere(CHAT) and goes_on_anywhere(TEXT)
    for request in (replace(CHAT, logprobs=True), replace(TEXT, prompt_logprobs=1)):
        assert goes_on_by_text(request)
        assert not goes_on_anywhere(request)
    assert not goes_on_anywhere(replace(CHAT, save_cache=True, cache_key="a"))
    assert not goes_on_anywhere(GenerateRequest(prompt=(1, 2)))
