from dataclasses import replace
from typing import Any

import pytest

from arriero.agent.chat.families.call_syntax import JSON_CALLS, JSON_IN_TAGS, CallSyntax, Members
from arriero.agent.chat.templates.turns import (
    BEGINNING,
    calls_as_text,
    has_calls,
    in_turn,
    with_tools,
    written,
)
from arriero.shared.inference import ChatMessage

SYSTEM = ChatMessage(role="system", content="Be brief.")


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def answer(text: str, **more: Any) -> ChatMessage:
    return ChatMessage(role="assistant", content=text, **more)


def call(id: str, name: str, arguments: object) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


class TestInTurn:
    def test_neighbours_are_joined(self) -> None:
        one, two = call("1", "f", "{}"), call("2", "g", "{}")
        assert in_turn(
            [
                SYSTEM,
                user("a"),
                user("b"),
                answer("c", reasoning_content="x"),
                answer("d", tool_calls=(one,)),
                answer("", reasoning_content="y", tool_calls=(two,)),
                user("e"),
            ]
        ) == [
            SYSTEM,
            user("a\n\nb"),
            answer("c\n\nd", reasoning_content="x\n\ny", tool_calls=(one, two)),
            user("e"),
        ]

    @pytest.mark.parametrize("turns", [[], [answer("a")], [answer("a"), user("b")]])
    def test_a_user_begins(self, turns: list[ChatMessage]) -> None:
        assert in_turn([SYSTEM, *turns]) == [SYSTEM, BEGINNING, *turns]

    def test_an_answer_that_says_nothing_is_left_out(self) -> None:
        assert in_turn([user("a"), answer(""), user("b")]) == [user("a\n\nb")]

    def test_results_stay(self) -> None:
        results = [ChatMessage(role="tool", content=text, tool_call_id="1") for text in "ab"]
        turns = [user("a"), answer("", tool_calls=(call("1", "f", "{}"),)), *results, user("b")]
        assert in_turn(turns) == turns


class TestCallsAsText:
    def test_calls_are_the_assistants_and_results_the_users(self) -> None:
        calls = (call("1", "f", '{"of": "Öl"}'), call("2", "g", '{"ci'))
        messages = [
            user("a"),
            answer("I look.", tool_calls=calls),
            ChatMessage(role="tool", content="no g", tool_call_id="2"),
            ChatMessage(role="tool", content="an f", tool_call_id="1", name="F"),
            ChatMessage(role="tool", content="of what?", tool_call_id="3"),
        ]
        assert has_calls(messages)
        shown = calls_as_text(messages)
        assert shown == [
            user("a"),
            answer(
                'I look.\n\n[{"name": "f", "arguments": {"of": "Öl"}}, '
                '{"name": "g", "arguments": {"arguments": "{\\"ci"}}]'
            ),
            user("Result of g:\nno g"),
            user("Result of F:\nan f"),
            user("Result:\nof what?"),
        ]
        assert not has_calls(shown)

    @pytest.mark.parametrize(
        ("syntax", "text"),
        [
            (JSON_IN_TAGS, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'),
            (CallSyntax("<NUMBER>NAME(", ")↵"), "<0>f({})\n"),
            (
                replace(JSON_CALLS, arguments=Members("<KEY>")),
                '[{"name": "f", "arguments": {}}]',
            ),
        ],
    )
    def test_a_model_s_own_notation(self, syntax: CallSyntax, text: str) -> None:
        assert written([("f", {})], syntax) == text

    def test_a_name_with_signs_of_the_notation(self) -> None:
        assert written([('NUMBER "NAME"', {})], JSON_CALLS) == (
            '[{"name": "NUMBER \\"NAME\\"", "arguments": {}}]'
        )


class TestWithTools:
    TOOLS = ({"type": "function", "function": {"name": "f", "description": "Öl?"}}, {"name": "g"})

    def test_an_instruction_has_the_tools_and_the_form_of_a_call(self) -> None:
        told, asked = with_tools([user("a")], self.TOOLS, JSON_CALLS)
        assert (told.role, asked) == ("system", user("a"))
        assert '{"name": "f", "description": "Öl?"}\n{"name": "g"}\n' in told.text
        form = written([("func_name1", {"argument1": "value1", "argument2": "value2"})], JSON_CALLS)
        assert f"\n{form}\n" in told.text

    def test_instructions_that_are_there_come_first(self) -> None:
        told, _ = with_tools([SYSTEM, user("a")], self.TOOLS, JSON_IN_TAGS)
        assert told.text.startswith("Be brief.\n\nYou have access to")
        assert "<tool_call>" in told.text
