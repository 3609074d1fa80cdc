from datetime import datetime
from typing import Any

import pytest

from arriero.agent.chat.templates.chat_template import ChatTemplate, TemplateError
from arriero.agent.chat.templates.user_text import RenderedText
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
        source,
        bos_text="<s>",
        eos_text="</s>",
        clock=lambda: datetime(2031, 7, 9, 12),
        timer=lambda: 0.0,
    )


def render(
    source: str,
    *messages: ChatMessage,
    tools: list[dict[str, Any]] | None = None,
    thinking: bool | None = None,
) -> str:
    return make(source).render(messages or (USER,), tools=tools, thinking=thinking).text


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
        switches = "{{ enable_thinking }} {{ thinking }} {{ thinking_mode }}"
        assert render(switches, thinking=True) == "True True enabled"
        assert render(switches, thinking=False) == "False False disabled"

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

    @pytest.mark.parametrize(
        ("source", "ignored"),
        [
            (CHATML, False),
            ("{% for tool in tools %}{{ tool.function.name }}{% endfor %}", False),
            ("{{ messages[0].content }}", True),
            ("{% if tools %}You have tools.{% endif %}", True),
        ],
    )
    def test_one_that_shows_no_tools_is_found_out(self, source: str, ignored: bool) -> None:
        assert make(source).ignores_tools == ignored

    def test_without_tools_they_are_none(self) -> None:
        assert render("{{ tools is none }} {{ documents is none }}") == "True True"

    def test_what_is_empty_is_as_absent(self) -> None:
        source = "{{ tools is none }} {{ documents is none }} {{ more is defined }}"
        options: dict[str, Any] = {"documents": [], "more": {}}
        text = make(source).render((USER,), tools=[], thinking=None, options=options).text
        assert text == "True True False"

    def test_without_tools_there_are_none_for_a_template_that_does_not_look(self) -> None:
        source = "{% for tool in tools %}{{ tool }}{% else %}no tools{% endfor %}"
        assert render(source) == "no tools"
        assert render(source, tools=[{}]) == "{}"

    def test_special_tokens(self) -> None:
        assert render("{{ bos_token }}x{{ eos_token }}") == "<s>x</s>"

    def test_content_is_text_and_never_a_template(self) -> None:
        parts = (TextPart(type="text", text="{{ 1 + 1 }}"), TextPart(type="text", text="<b>"))
        assert render("{{ messages[0].content }}", ChatMessage(role="user", content=parts)) == (
            "{{ 1 + 1 }}\n<b>"
        )
        assert render("{{ messages[0].content }}", ChatMessage(role="assistant")) == ""


class TestOptions:
    def test_are_variables_of_the_template(self) -> None:
        compiled = make("{{ effort }} {{ thinking }} {{ documents[0].text }}")
        text = compiled.render(
            (USER,),
            tools=None,
            thinking=True,
            options={"effort": "high", "thinking": "a lot", "documents": [{"text": "x"}]},
        )
        assert text.text == "high a lot x"

    def test_what_a_template_does_to_its_variables_stays_with_it(self) -> None:
        source = "{{ messages.append(1) }}{{ seen.append(1) }}{{ tools[0].a.pop() }}"
        options, tools = {"seen": [0]}, [{"a": [7]}]
        for _ in range(2):
            make(source).render((USER,), tools=tools, thinking=None, options=options)
        assert (options, tools) == ({"seen": [0]}, [{"a": [7]}])


class TestGoingOn:
    SOURCE = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content CHANGE }}[end]{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    MESSAGES = (USER, ChatMessage(role="assistant", content="It is \n"))

    @pytest.mark.parametrize(("change", "end"), [("", "It is \n"), ("| trim", "It is")])
    def test_the_prompt_ends_where_the_last_message_does(self, change: str, end: str) -> None:
        compiled = make(self.SOURCE.replace("CHANGE", change))
        text = compiled.render(self.MESSAGES, tools=None, thinking=None, goes_on=True)
        assert text.text == f"[user]{USER.content}[end][assistant]{end}"

    @pytest.mark.parametrize("change", ["", "| trim"])
    def test_the_message_stands_where_an_answer_would(self, change: str) -> None:
        source = (
            self.SOURCE.replace("CHANGE", change) + "{% if add_generation_prompt %}<>{% endif %}"
        )

        def text(**more: Any) -> str:
            return make(source).render(self.MESSAGES, tools=None, thinking=None, **more).text

        before, said = f"[user]{USER.content}[end][assistant]", "It is" if change else "It is \n"
        assert text(goes_on=True) == f"{before}<>{said}"
        assert text(goes_on=True, add_generation_prompt=False) == f"{before}{said}"
        assert text(goes_on=True, reasoning="<>") == f"{before}{said}", "it would be reasoning"

    def test_what_a_template_writes_before_this_message_stays(self) -> None:
        source = (
            "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}<final>{% endif %}"
            "{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]<think>{% endif %}"
        )
        text = make(source).render(self.MESSAGES, tools=None, thinking=None, goes_on=True)
        assert text.text == f"[user]{USER.content}[assistant]<final>It is \n"

    def test_a_template_that_wants_a_message_before_the_answer(self) -> None:
        source = "{{ messages[0].role }}" + self.SOURCE.replace("CHANGE", "")
        alone = self.MESSAGES[1:]
        text = make(source).render(alone, tools=None, thinking=None, goes_on=True)
        assert text.text == "assistant[assistant]It is \n"

    def test_a_template_that_does_not_show_the_last_message_is_refused(self) -> None:
        with pytest.raises(InvalidRequest, match="does not show the last message"):
            make("x").render(self.MESSAGES, tools=None, thinking=None, goes_on=True)


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

    def test_it_is_called_by_its_origin(self) -> None:
        with pytest.raises(TemplateError, match=r"^template a\.jinja does not compile: line 1"):
            ChatTemplate(
                "{% if %}",
                origin="template a.jinja",
                bos_text="",
                eos_text="",
                clock=datetime.now,
                timer=lambda: 0.0,
            )

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


class TestTurns:
    ALTERNATE = (
        "{% for m in messages %}"
        "{% if (m.role == 'user') == loop.index0 % 2 %}{{ raise_exception('no!') }}{% endif %}"
        "[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    )
    CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    CALLED = (
        USER,
        ChatMessage(role="assistant", tool_calls=(CALL,)),
        ChatMessage(role="tool", content="3", tool_call_id="1"),
    )
    SAID = '[assistant] [{"name": "f", "arguments": {}}]\n[user] Result of f:\n3'

    def shown(self, source: str, *messages: ChatMessage) -> RenderedText:
        return make(source).render(messages, tools=None, thinking=None)

    def test_that_the_template_takes_stay(self) -> None:
        rendered = self.shown(self.ALTERNATE, USER, ChatMessage(role="assistant", content="x"))
        assert not rendered.notices

    def test_that_the_template_refuses_are_joined_and_the_client_is_told(self) -> None:
        rendered = self.shown(
            self.ALTERNATE, ChatMessage(role="assistant", content="x"), USER, USER
        )
        assert rendered.text == (
            f"[user] Begin.\n[assistant] x\n[user] {USER.content}\n\n{USER.content}\n"
        )
        [notice] = rendered.notices
        assert notice.code == "messages_changed"
        assert (
            "refuses the messages, line 1: no!; users and assistants take turns" in notice.message
        )

    def test_calls_that_the_template_refuses_are_text(self) -> None:
        rendered = self.shown(self.ALTERNATE, *self.CALLED, USER)
        assert rendered.text == (f"[user] {USER.content}\n{self.SAID}\n\n{USER.content}\n")
        [notice] = rendered.notices
        assert "shown as text, and users and assistants take turns" in notice.message

    def test_calls_that_the_template_would_leave_out_are_text(self) -> None:
        source = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        rendered = self.shown(source, *self.CALLED)
        assert rendered.text == f"[user] {USER.content}\n{self.SAID}\n"
        [notice] = rendered.notices
        assert "does not show calls; calls and results are shown as text" in notice.message

    def test_a_template_that_takes_too_long_is_not_tried_again(self) -> None:
        seconds = iter(range(0, 100_000, 9))
        template = ChatTemplate(
            "{% for i in range(2 ** 10) %}{{ messages[0].content }}{% endfor %}",
            bos_text="",
            eos_text="",
            clock=datetime.now,
            timer=lambda: next(seconds),
        )
        with pytest.raises(InvalidRequest, match="took more than 10 seconds"):
            template.render((USER, USER), tools=None, thinking=None)


class TestInstructions:
    STRICT = (
        "{% for m in messages %}"
        "{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}{% endif %}"
        "{% if m.role == 'developer' %}{{ raise_exception('who?') }}{% endif %}"
        "[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    )

    def test_that_the_template_refuses_are_placed_where_it_takes_them(self) -> None:
        text = render(
            self.STRICT,
            ChatMessage(role="developer", content="One."),
            ChatMessage(role="developer", content="Two."),
            ChatMessage(role="user", content="Hi."),
            ChatMessage(role="system", content="Three."),
        )
        assert text == (
            "[system] One.\n\nTwo.\n[user] Hi.\n\n<instructions>\nThree.\n</instructions>\n"
        )

    def test_that_the_template_shows_stay(self) -> None:
        said = [ChatMessage(role=role, content=role) for role in ("user", "system", "assistant")]
        assert render(
            "{% for m in messages %}{{ m.role }}={{ m.content }} {% endfor %}", *said
        ) == ("user=user system=system assistant=assistant ")
