from datetime import datetime
from typing import Any

import pytest

from arriero.agent.chat import template
from arriero.agent.chat.template import ChatTemplate, TemplateError
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import ChatMessage, TextPart

USER = ChatMessage(role="user", content="Hi <you> & “all”")

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if loop.first and message.role == 'system' %}{% continue %}{% endif %}
    {%- if message.role == "assistant" and message.tool_calls %}
        {{- '<|im_start|>assistant\\n' + message.content }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {%- if tool_call.arguments is string %}
                {{- tool_call.arguments }}
            {%- else %}
                {{- tool_call.arguments | tojson }}
            {%- endif %}
            {{- '}\\n</tool_call><|im_end|>\\n' }}
        {%- endfor %}
    {%- elif message.role == "assistant" and message.reasoning_content is defined %}
        {{- '<|im_start|>assistant\\n<think>' + message.reasoning_content + '</think>' }}
        {{- message.content.strip('\\n') + '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>tool ' + message.tool_call_id + '\\n' }}
        {{- message.content + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def make(source: str) -> ChatTemplate:
    return ChatTemplate(
        source, bos_text="<s>", eos_text="</s>", clock=lambda: datetime(2031, 7, 9, 12)
    )


def render(
    source: str,
    *messages: ChatMessage,
    tools: list[dict[str, Any]] | None = None,
    thinking: bool | None = None,
) -> str:
    return make(source).render(messages or (USER,), tools=tools, thinking=thinking)


class TestWhatRealTemplatesUse:
    def test_a_conversation(self) -> None:
        messages = (
            ChatMessage(role="system", content="Be brief."),
            ChatMessage(role="user", content="One?"),
            ChatMessage(role="assistant", content="\n1\n", reasoning_content="hm"),
            ChatMessage(role="user", content="Two?"),
        )
        assert render(CHATML, *messages) == (
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nOne?<|im_end|>\n"
            "<|im_start|>assistant\n<think>hm</think>1<|im_end|>\n"
            "<|im_start|>user\nTwo?<|im_end|>\n"
            "<|im_start|>assistant\n"
        )

    def test_thinking_is_passed_only_when_it_was_asked_for(self) -> None:
        assert render(CHATML, thinking=False).endswith("assistant\n<think>\n\n</think>\n\n")
        assert render(CHATML, thinking=True).endswith("assistant\n")
        assert render("{{ enable_thinking is defined }}") == "False"
        assert render("{{ enable_thinking }}", thinking=True) == "True"

    def test_tools_and_calls(self) -> None:
        tool = {"type": "function", "function": {"name": "größe", "pattern": "<b> & 'c'"}}
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "größe", "arguments": '{"of": "Öl"}'},
        }
        text = render(
            CHATML,
            ChatMessage(role="user", content="?"),
            ChatMessage(role="assistant", tool_calls=(call,)),
            ChatMessage(role="tool", content="3", tool_call_id="c1"),
            tools=[tool],
        )
        assert (
            '{"type": "function", "function": {"name": "größe", "pattern": "<b> & \'c\'"}}' in text
        )
        assert '<tool_call>\n{"name": "größe", "arguments": {"of": "Öl"}}\n</tool_call>' in text
        assert "<|im_start|>tool c1\n3<|im_end|>" in text

    def test_arguments_that_are_no_json_stay_as_they_are(self) -> None:
        call = {"function": {"name": "f", "arguments": "{oops"}}
        message = ChatMessage(role="assistant", tool_calls=(call, {"name": "plain"}))
        source = "{% for c in messages[0].tool_calls %}{{ c | tojson }};{% endfor %}"
        assert render(source, message) == (
            '{"function": {"name": "f", "arguments": "{oops"}};{"name": "plain"};'
        )

    def test_without_tools_they_are_none(self) -> None:
        assert render("{{ tools is none }} {{ documents is none }}") == "True True"

    def test_blocks_are_trimmed_as_hugging_face_does(self) -> None:
        assert render("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"

    def test_loop_controls(self) -> None:
        source = "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}"
        assert render(source + "{% if i == 3 %}{% break %}{% endif %}{% endfor %}") == "023"

    def test_loop_variables_work_although_rounds_are_counted(self) -> None:
        source = (
            "{% for i in 'abc' %}{{ loop.index }}{{ loop.length }}{{ loop.last }}"
            "{{ loop.nextitem }}{% else %}none{% endfor %}"
            "{% for i in [] %}x{% else %}none{% endfor %}"
            "{% for m in messages if m.role == 'tool' %}x{% else %}no tool{% endfor %}"
        )
        assert render(source) == "13Falseb23Falsec33Truenoneno tool"

    def test_macros_and_namespaces(self) -> None:
        source = (
            "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}"
            "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}"
            "{% endfor %}{{ twice(ns.n) }}"
        )
        assert render(source) == "33"

    def test_tojson(self) -> None:
        assert render("{{ {'b': '<é>', 'a': 1} | tojson }}") == '{"b": "<é>", "a": 1}'
        assert render("{{ {'b': 2, 'a': 1} | tojson(indent=2, sort_keys=true) }}") == (
            '{\n  "a": 1,\n  "b": 2\n}'
        )

    def test_dates(self) -> None:
        assert render("{{ strftime_now('%d %b %Y') }}") == "09 Jul 2031"

    def test_special_tokens(self) -> None:
        assert render("{{ bos_token }}x{{ eos_token }}") == "<s>x</s>"

    def test_generation_marks_are_transparent(self) -> None:
        assert render("a{% generation %}b{{ 1 }}{% endgeneration %}c") == "ab1c"

    def test_content_is_text_and_never_a_template(self) -> None:
        parts = (TextPart(type="text", text="{{ 1 + 1 }}"), TextPart(type="text", text="<b>"))
        assert render("{{ messages[0].content }}", ChatMessage(role="user", content=parts)) == (
            "{{ 1 + 1 }}<b>"
        )
        assert render("{{ messages[0].content }}", ChatMessage(role="assistant")) == ""


class TestDevelopers:
    MESSAGE = ChatMessage(role="developer", content="x")

    def test_are_system_to_a_template_that_does_not_know_them(self) -> None:
        assert render("{{ messages[0].role }}", self.MESSAGE) == "system"

    def test_stay_where_the_template_knows_them(self) -> None:
        source = "{{ messages[0].role == 'developer' }}"
        assert render(source, self.MESSAGE) == "True"


class TestMistakes:
    @pytest.mark.parametrize(
        ("source", "where"),
        [
            ("a\nb\n{% for %}", "line 3"),
            ("\n{{ 1 | no_such_filter }}", "line 2"),
            ("{% if true %}", "line 1"),
        ],
    )
    def test_one_that_does_not_compile_says_where(self, source: str, where: str) -> None:
        with pytest.raises(TemplateError, match=f"does not compile: {where}: "):
            make(source)

    def test_one_that_only_python_finds_wrong_does_not_compile_either(self) -> None:
        with pytest.raises(TemplateError, match="does not compile: 'break' outside loop"):
            make("x\n{% break %}")

    def test_a_refusal_reaches_the_client_with_its_line(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            render("\n{{ raise_exception('roles must alternate') }}")
        assert caught.value.message == (
            "the model's chat template refuses the messages, line 2: roles must alternate"
        )
        assert caught.value.field == "messages"

    @pytest.mark.parametrize(
        "expression",
        [
            "messages[9].content",
            "nothing.at.all",
            "1 / 0",
            "none + 1",
            "strftime_now(3)",
            "missing()",
            "none | length",
            "[].x.y",
            "range(10 ** 9) | list",
        ],
    )
    def test_one_that_fails_says_where(self, expression: str) -> None:
        with pytest.raises(InvalidRequest, match="failed on the messages, line 3: "):
            render("{% set a = 1 %}\n\n{{ " + expression + " }}")


class TestSandbox:
    @pytest.mark.parametrize(
        "expression",
        [
            "''.__class__.__mro__",
            "''['__class__']['__mro__']",
            "(''|attr('__class__')).__mro__",
            "raise_exception.__globals__.keys()",
            "strftime_now.__globals__.keys()",
            "''.format.__self__.__class__.__base__",
            "'{0.__class__.__mro__}'.format(1)",
            "messages.append(1)",
            "messages[0].update({'role': 'system'})",
            "messages[0].pop('role')",
            "self.__init__.__globals__.keys()",
            "cycler.__init__.__globals__.os",
        ],
    )
    def test_ways_out_are_refused(self, expression: str) -> None:
        with pytest.raises(InvalidRequest):
            render("{{ " + expression + " }}")

    @pytest.mark.parametrize("tag", ["include 'x'", "import 'x' as y", "extends 'x'"])
    def test_other_files_are_out_of_reach(self, tag: str) -> None:
        with pytest.raises(InvalidRequest):
            render("{% " + tag + " %}")


class TestBounds:
    def test_all_loops_together_are_bounded(self) -> None:
        source = "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}"
        with pytest.raises(InvalidRequest, match=f"more than {template.MAX_ROUNDS} rounds"):
            render(source)

    def test_each_render_counts_for_itself(self) -> None:
        compiled = make("{% for i in range(90000) %}{% endfor %}done")
        assert [compiled.render((USER,), tools=None, thinking=None) for _ in range(4)] == [
            "done"
        ] * 4

    def test_output_is_bounded(self) -> None:
        source = "{% set x = 'x' * 1000000 %}{% for i in range(1000) %}{{ x }}{% endfor %}"
        with pytest.raises(InvalidRequest, match="wrote more than"):
            render(source)

    def test_recursion_is_bounded(self) -> None:
        with pytest.raises(InvalidRequest):
            render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
