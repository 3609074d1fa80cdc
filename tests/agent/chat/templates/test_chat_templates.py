from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from arriero.agent.chat.templates.chat_template import TemplateError
from arriero.agent.chat.templates.chat_templates import (
    ChatTemplates,
    TemplateSource,
    given_template,
)
from arriero.agent.engine.loaded_model import LoadedModel
from arriero.shared.errors import InvalidRequest, NotSupported
from arriero.shared.inference import ChatMessage
from tests.agent.fakes import byte_model

USER = ChatMessage(role="user", content="hi")
TOOLS = ({"type": "function", "function": {"name": "f"}},)
GENERAL = "general: {{ messages[0].content }}"
FOR_TOOLS = "{{ tools[0].function.name }}: {{ messages[0].content }}"


def model(general: str | None = GENERAL, for_tools: str | None = None) -> LoadedModel:
    return replace(byte_model(general), tool_template=for_tools)


def templates(of: LoadedModel, given: TemplateSource | None = None) -> ChatTemplates:
    return ChatTemplates(of, given, clock=lambda: datetime(2031, 7, 9))


def render(
    of: ChatTemplates,
    *messages: ChatMessage,
    tools: tuple[dict[str, Any], ...] | None = None,
    **fields: Any,
) -> str:
    fields = {"thinking": None, **fields}
    return (
        of.for_request(has_tools=bool(tools))
        .render(messages or (USER,), tools=tools, **fields)
        .text
    )


class TestWhichOne:
    def test_the_models_own(self) -> None:
        own = templates(model())
        assert (render(own), own.issue) == ("general: hi", None)
        assert "hi" in render(own, tools=TOOLS)

    def test_the_one_for_tools(self) -> None:
        own = templates(model(for_tools=FOR_TOOLS))
        assert render(own) == "general: hi"
        assert render(own, tools=TOOLS) == "f: hi"
        assert own.text == GENERAL + FOR_TOOLS

    def test_only_one_for_tools(self) -> None:
        own = templates(model(None, FOR_TOOLS))
        assert render(own, tools=TOOLS) == "f: hi"
        with pytest.raises(NotSupported, match="for tools only"):
            render(own)

    def test_the_operators_in_place_of_both(self) -> None:
        given = templates(model(for_tools=FOR_TOOLS), TemplateSource("given"))
        assert (render(given), render(given, tools=TOOLS), given.text) == ("given",) * 3

    def test_none(self) -> None:
        none = templates(model(None))
        assert none.issue == "the model has no chat template; send `prompt` instead"
        with pytest.raises(NotSupported, match="has no chat template"):
            render(none)

    @pytest.mark.parametrize("of", [model("{% if %}"), model(for_tools="{% if %}")])
    def test_a_broken_one_of_the_model_is_an_issue(self, of: LoadedModel) -> None:
        broken = templates(of)
        assert broken.issue is not None
        assert broken.issue.startswith("the model's chat template does not compile: line 1")
        with pytest.raises(NotSupported, match="line 1"):
            render(broken, tools=TOOLS)

    def test_a_broken_one_of_the_operators_is_an_error(self) -> None:
        with pytest.raises(TemplateError, match=r"^the chat template a\.jinja does not compile"):
            templates(model(), TemplateSource("{% if %}", "the chat template a.jinja"))


class TestWhatARequestSays:
    def test_variables_and_thinking(self) -> None:
        of = templates(model("{{ enable_thinking }} {{ effort }} {{ add_generation_prompt }}"))
        variables = {"effort": "high"}
        assert render(of, thinking=True, options=variables) == "True high True"
        assert render(of, add_generation_prompt=False) == "  False"

    def test_thinking_among_the_variables_is_thinking(self) -> None:
        of = templates(model("{{ enable_thinking }} {{ thinking }} {{ thinking_mode }}"))
        text = render(of, options={"enable_thinking": False})
        assert text == "False False disabled"

    def test_an_answer_may_go_on(self) -> None:
        of = templates(model("{% for m in messages %}[{{ m.content }}]{% endfor %}"))
        begun = ChatMessage(role="assistant", content="I am")
        assert render(of, USER, begun, goes_on=True) == "[hi][I am"

    def test_refusals_are_the_clients(self) -> None:
        with pytest.raises(InvalidRequest, match="refuses the messages, line 1: no"):
            render(templates(model("{{ raise_exception('no') }}")))


class TestToolsNotice:
    def test_none_where_tools_are_shown(self) -> None:
        assert templates(model("{{ tools }}")).tools_notice is None
        assert templates(model(for_tools="{{ tools }}")).tools_notice is None
        assert templates(model(None)).tools_notice is None

    def test_names_the_template_and_what_would_be_right(self) -> None:
        notice = templates(model("{{ tools }}"), TemplateSource("x", "the one given")).tools_notice
        assert notice is not None
        assert notice.code == "tools_described"
        assert notice.message == (
            "`tools`: the one given does not show them, so an instruction describes them; "
            "a model whose template shows tools calls them better, and so may --chat-template"
        )

    @pytest.mark.parametrize(
        ("hint", "form"),
        [
            ("", '[{"name": "func_name1", "arguments": {"argument1": "value1", '),
            ("<tool_call>", '<tool_call>\n{"name": "func_name1", "arguments": {"argument'),
            ("<tool_call><function=", '[{"name": "func_name1"'),
        ],
        ids=["unknown", "the model's own", "the model's own is not JSON"],
    )
    def test_calls_are_asked_for_in_a_notation_that_is_read(self, hint: str, form: str) -> None:
        source = (
            "{% if 0 %}" + hint + "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
        )
        assert form in render(templates(model(source)), tools=TOOLS)


class TestGiven:
    def test_as_text(self) -> None:
        assert given_template("{{ x }}") == TemplateSource(
            "{{ x }}", "the template in --chat-template"
        )
        assert given_template("a\nb").text == "a\nb"

    def test_as_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "t.jinja"
        path.write_text("{{ '☃' }}", encoding="utf-8")
        assert given_template(str(path)) == TemplateSource("{{ '☃' }}", f"the chat template {path}")

    @pytest.mark.parametrize(
        ("content", "wrong"),
        [(None, "No such file"), (b"\xff", "not UTF-8"), (b"x" * 5_000_000, "more")],
    )
    def test_a_file_that_is_none(self, content: bytes | None, wrong: str, tmp_path: Path) -> None:
        path = tmp_path / "t.jinja"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(TemplateError, match=f"^--chat-template {path}: {wrong}"):
            given_template(str(path))
