import json
import re
from typing import Any

import pytest

from arriero.agent.chat.templates.message_form import MessageForm, form_wanted, ignores_tools
from arriero.shared.inference import ChatMessage, TextPart

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "f", "arguments": '{"of": "Öl"}'},
}
CALLS = ChatMessage(role="assistant", tool_calls=(CALL,))


def plain(*messages: ChatMessage, form: MessageForm | None = None) -> list[dict[str, Any]]:
    return (form or MessageForm()).plain(messages)


class TestPlain:
    def test_parts_are_one_text(self) -> None:
        parts = (TextPart(type="text", text="{{ 1 }}"), TextPart(type="text", text="<b>"))
        assert plain(ChatMessage(role="user", content=parts)) == [
            {"role": "user", "content": "{{ 1 }}\n<b>"}
        ]

    def test_a_template_that_wants_parts_gets_parts(self) -> None:
        form = MessageForm(has_parts=True)
        assert plain(ChatMessage(role="user", content="x"), form=form) == [
            {"role": "user", "content": [{"type": "text", "text": "x"}]}
        ]

    def test_arguments_are_objects(self) -> None:
        (message,) = plain(CALLS)
        assert message["content"] == ""
        assert message["tool_calls"][0]["function"]["arguments"] == {"of": "Öl"}
        assert CALL["function"] == {"name": "f", "arguments": '{"of": "Öl"}'}

    def test_arguments_are_text_where_that_is_wanted(self) -> None:
        form = MessageForm(has_text_arguments=True, silence=None)
        as_object = {"function": {"name": "f", "arguments": {"of": "Öl"}}}
        (message,) = plain(ChatMessage(role="assistant", tool_calls=(CALL, as_object)), form=form)
        assert message["content"] is None
        assert [call["function"]["arguments"] for call in message["tool_calls"]] == [
            '{"of": "Öl"}',
            '{"of": "Öl"}',
        ]

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            ("", {}),
            (" \n", {}),
            ("null", {}),
            (None, {}),
            ("{oops", {"arguments": "{oops"}),
            ("[" * 100_000, {"arguments": "[" * 100_000}),
            ("in words", {"arguments": "in words"}),
            ('"in words"', {"arguments": "in words"}),
            ("[1]", {"arguments": [1]}),
            ([], {}),
            ([1], {"arguments": [1]}),
            (3, {"arguments": 3}),
            (False, {"arguments": False}),
        ],
    )
    def test_arguments_that_are_no_object_stand_in_one(self, arguments: object, shown: Any) -> None:
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        (message,) = plain(ChatMessage(role="assistant", tool_calls=(call,)))
        assert message["tool_calls"] == [{**call, "function": {"name": "f", "arguments": shown}}]
        form = MessageForm(has_text_arguments=True)
        (message,) = plain(ChatMessage(role="assistant", tool_calls=(call,)), form=form)
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == shown

    @pytest.mark.parametrize(
        ("call", "name"),
        [
            ({"function": {"name": "f"}}, "f"),
            ({"type": None, "name": "f", "arguments": None}, "f"),
            ({"function": {"arguments": "{}"}}, ""),
            ({"function": {"name": None}}, ""),
            ({"function": None}, ""),
            ({}, ""),
        ],
    )
    def test_half_a_call_is_shown_as_a_whole_one(self, call: dict[str, Any], name: str) -> None:
        (message,) = plain(ChatMessage(role="assistant", tool_calls=(call,)))
        assert message["tool_calls"] == [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": name, "arguments": {}},
            }
        ]

    @pytest.mark.parametrize(
        "id", ["call_00001", "toolu_01A09q90qw90lq917835lq9", "functions.f:0", "", "a", "ä" * 9]
    )
    def test_a_call_and_its_result_have_the_same_short_id_where_that_is_wanted(
        self, id: str
    ) -> None:
        call = ChatMessage(role="assistant", tool_calls=({**CALL, "id": id},))
        other = ChatMessage(role="assistant", tool_calls=({**CALL, "id": f"{id}!"},))
        result = ChatMessage(role="tool", content="1", tool_call_id=id)
        form = MessageForm(has_short_ids=True)
        called, answered, called_again = plain(call, result, other, form=form)
        short = called["tool_calls"][0]["id"]
        assert re.fullmatch("[A-Za-z0-9]{9}", short)
        assert answered["tool_call_id"] == short
        assert answered["name"] == "f"
        assert called_again["tool_calls"][0]["id"] != short
        assert plain(call)[0]["tool_calls"][0]["id"] == id, "other templates see the client's own"

    @pytest.mark.parametrize("id", ["call00001", "aB3dE6gH9"])
    def test_a_short_id_stays(self, id: str) -> None:
        call = ChatMessage(role="assistant", tool_calls=({**CALL, "id": id},))
        (message,) = plain(call, form=MessageForm(has_short_ids=True))
        assert message["tool_calls"][0]["id"] == id

    def test_no_calls_are_absent(self) -> None:
        (message,) = plain(ChatMessage(role="assistant", content="x", tool_calls=()))
        assert message == {"role": "assistant", "content": "x"}

    def test_a_result_is_named_after_the_function_it_is_of(self) -> None:
        names = [
            message.get("name")
            for message in plain(
                CALLS,
                ChatMessage(role="tool", content="1", tool_call_id="c1"),
                ChatMessage(role="tool", content="1", tool_call_id="c1", name="other"),
                ChatMessage(role="tool", content="1", tool_call_id="c2"),
                ChatMessage(role="tool", content="1"),
            )
        ]
        assert names == [None, "f", "other", None, None]

    def test_reasoning_goes_by_both_its_names(self) -> None:
        (message,) = plain(ChatMessage(role="assistant", content="x", reasoning_content="hm"))
        assert (message["reasoning_content"], message["thinking"]) == ("hm", "hm")


class TestFormWanted:
    @staticmethod
    def wanted(of_message: Any) -> MessageForm:
        """The form wanted by a template that shows each message with `of_message`."""

        def attempt(messages: list[dict[str, Any]], _tools: object) -> str:
            try:
                return "".join(of_message(message) for message in messages)
            except TypeError:
                return ""

        return form_wanted(attempt)

    def test_most_take_objects(self) -> None:
        assert self.wanted(json.dumps) == MessageForm()

    def test_one_that_shows_no_calls(self) -> None:
        form = self.wanted(lambda message: message["content"])
        assert form == MessageForm(shows_calls=False)

    def test_one_that_refuses_everything(self) -> None:
        assert self.wanted(lambda message: None + 1) == MessageForm(shows_calls=False)

    @pytest.mark.parametrize(
        "arguments_of",
        [lambda arguments: "" + arguments, str],
        ids=["fails on objects", "shows objects as Python does"],
    )
    def test_one_that_takes_text(self, arguments_of: Any) -> None:
        def of_message(message: dict[str, Any]) -> str:
            calls = message.get("tool_calls", [])
            return "".join(arguments_of(call["function"]["arguments"]) for call in calls)

        assert self.wanted(of_message) == MessageForm(has_text_arguments=True)

    def test_one_that_shows_calls_only_where_there_is_no_content(self) -> None:
        def of_message(message: dict[str, Any]) -> str:
            return json.dumps(message) if message["content"] is None else message["content"]

        assert self.wanted(of_message) == MessageForm(silence=None)

    def test_one_that_refuses_long_ids(self) -> None:
        def of_message(message: dict[str, Any]) -> str:
            if any(len(call["id"]) != 9 for call in message.get("tool_calls", ())):
                raise TypeError
            return json.dumps(message)

        assert self.wanted(of_message) == MessageForm(has_short_ids=True)

    def test_one_that_takes_parts(self) -> None:
        def of_message(message: dict[str, Any]) -> str:
            content, calls = message["content"], message.get("tool_calls", [])
            return "".join(part["text"] for part in content) + json.dumps(calls)

        assert self.wanted(of_message) == MessageForm(has_parts=True)


class TestIgnoresTools:
    @staticmethod
    def ignored(of: Any) -> bool:
        """By a template that makes `of(roles, tools)` of what it is given; empty if it refuses."""
        return ignores_tools(
            lambda messages, tools: of([each["role"] for each in messages], tools), MessageForm()
        )

    def test_one_that_shows_them(self) -> None:
        assert not self.ignored(lambda _roles, tools: json.dumps(tools))

    def test_one_that_shows_them_only_to_a_system(self) -> None:
        assert not self.ignored(
            lambda roles, tools: json.dumps(tools) if "system" in roles else "x"
        )

    def test_one_that_says_nothing_of_them(self) -> None:
        assert self.ignored(lambda _roles, _tools: "x")

    def test_one_that_knows_no_system_either(self) -> None:
        assert self.ignored(lambda roles, _tools: "" if "system" in roles else "x")

    def test_one_that_refuses_everything_says_why_by_itself(self) -> None:
        assert not self.ignored(lambda _roles, _tools: "")
