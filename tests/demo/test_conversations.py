"""The corpus is well formed, and prompts and answers fit together."""

from __future__ import annotations

import json

import pytest
from jinja2.exceptions import TemplateError

from demo.conversations import (
    CORPUS,
    SYSTEM_MESSAGES,
    TEMPLATE,
    Conversation,
    answer_text,
    load_conversations,
    parse_conversation,
)
from demo.prompts import compile_template, render, render_conversation

CONVERSATIONS = load_conversations()
CHAT = compile_template(TEMPLATE.read_text(encoding="utf-8"))
TURN_WITHOUT_THOUGHTS = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def prompt_of(conversation: Conversation, system: str | None = None) -> str:
    return render_conversation(CHAT, conversation, system)


def test_ids_are_unique_and_name_their_file() -> None:
    ids = [c.id for c in CONVERSATIONS]
    assert len(set(ids)) == len(ids)
    topics = {path.stem for path in CORPUS.glob("*.jsonl")}
    assert {i.rsplit("-", 1)[0] for i in ids} == topics


def test_no_prompt_has_two_answers() -> None:
    answers: dict[str, str] = {}
    for conversation in CONVERSATIONS:
        prompt = prompt_of(conversation)
        assert answers.setdefault(prompt, conversation.answer) == conversation.answer
    assert len(answers) == len(CONVERSATIONS)


def test_every_answer_is_an_assistants() -> None:
    for conversation in CONVERSATIONS:
        assert conversation.answer_message["role"] == "assistant"
        assert conversation.prompt_messages[-1]["role"] in ("user", "tool")
        assert conversation.answer.strip() == conversation.answer != ""


def test_thoughts_stand_in_the_answer_when_thinking_is_on() -> None:
    for conversation in CONVERSATIONS:
        assert conversation.answer.startswith("<think>\n") == conversation.thinking
        ending = "<|im_start|>assistant\n" if conversation.thinking else TURN_WITHOUT_THOUGHTS
        assert prompt_of(conversation).endswith("<|im_end|>\n" + ending)


def test_tool_calls_are_json_and_name_a_tool() -> None:
    for conversation in CONVERSATIONS:
        names = {tool["function"]["name"] for tool in conversation.tools}
        for part in conversation.answer.split("<tool_call>")[1:]:
            call = json.loads(part.partition("</tool_call>")[0])
            assert call["name"] in names
            assert isinstance(call["arguments"], dict)


def test_a_past_answer_is_rendered_as_it_was_written_but_without_thoughts() -> None:
    message = {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "I need the list.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "b", "arguments": '{"x": 1}'}},
        ],
    }
    messages = [{"role": "user", "content": "Hi"}, message, {"role": "user", "content": "Go on"}]
    prompt = render(CHAT, messages)
    assert f"assistant\n{answer_text(message, thinking=False)}<|im_end|>" in prompt
    assert "I need the list." not in prompt


def test_thoughts_inside_a_past_answers_content_are_left_out() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHello"},
        {"role": "user", "content": "Go on"},
    ]
    prompt = render(CHAT, messages)
    assert "<|im_start|>assistant\nHello<|im_end|>" in prompt


def test_arguments_may_be_an_object() -> None:
    call = {"function": {"name": "a", "arguments": {"x": 1}}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    prompt = render(CHAT, messages)
    assert '<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call><|im_end|>' in prompt


def test_results_in_a_row_share_one_turn() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    messages += [{"role": "tool", "content": str(n)} for n in (1, 2)]
    prompt = render(CHAT, messages)
    expected = (
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>"
        "\n<tool_response>\n2\n</tool_response><|im_end|>\n"
    )
    assert expected in prompt


def test_the_system_message_comes_before_the_tools() -> None:
    with_tools = next(c for c in CONVERSATIONS if c.tools)
    prompt = prompt_of(with_tools, SYSTEM_MESSAGES[0])
    assert prompt.startswith(f"<|im_start|>system\n{SYSTEM_MESSAGES[0]}\n\n# Tools\n")
    assert prompt.count("<|im_start|>system") == 1


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Late"}],
        [{"role": "llama", "content": "Hi"}],
    ],
)
def test_what_the_template_cannot_show_is_refused(messages: list[dict[str, str]]) -> None:
    with pytest.raises(TemplateError):
        render(CHAT, messages)


def test_tools_may_be_given_in_the_line_itself() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    row = {
        "id": "x-001",
        "tools": [tool],
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}],
    }
    parsed = parse_conversation(row, {})
    assert parsed.tools == (tool,)
    assert parsed.answer == "Yes"
