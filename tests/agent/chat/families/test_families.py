from importlib import import_module
from itertools import permutations
from pkgutil import iter_modules

import pytest

from arriero.agent.chat.constraints.answer_grammar import AnswerFormat, answer_grammar
from arriero.agent.chat.families import records
from arriero.agent.chat.families.families import (
    FAMILIES,
    FAMILY_NAMES,
    families_in,
    family_named,
    family_of,
)
from arriero.agent.chat.families.family import Family
from arriero.agent.chat.parsing.tagged_calls import Tags
from arriero.shared.inference import ChatMessage, GenerateRequest
from tests.agent.chat.families import invented
from tests.agent.chat.telling import told
from tests.agent.saying import demo_grammars, fits

TAGS = {
    f"{file.name}.{name}": each
    for file in iter_modules(records.__path__)
    for name, each in vars(import_module(f"{records.__name__}.{file.name}")).items()
    if isinstance(each, Tags)
}


def test_every_name_has_one_family() -> None:
    assert len(set(FAMILY_NAMES)) == len(FAMILIES)
    assert all(family_named(family.name) is family for family in FAMILIES)


def test_a_name_without_a_family() -> None:
    with pytest.raises(KeyError, match="there is no family 'nobody'"):
        family_named("nobody")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_marker_begins_with_another(family: Family) -> None:
    found = [each for each in family.markers(has_tools=True) if each not in family.inner]
    for marker, other in permutations(found, 2):
        assert not marker.startswith(other), (marker, other)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_templates_hints_are_evidence_of_its_family(family: Family) -> None:
    for hint in family.hints:
        assert family.evidence("".join(hint.texts)) == hint.evidence
        assert family.evidence("".join(hint.texts[1:])) is None


@pytest.mark.parametrize("name", TAGS)
def test_an_argument_and_its_end_can_be_told_apart(name: str) -> None:
    tags = TAGS[name]
    assert tags.key_start
    assert len({tags.key_start, tags.value_end, tags.end}) == 3
    assert tags.key_end or tags.typed_key_ends


class TestAnInventedFamilyIsOneRecord:
    template = "{{ '{{run}}' }}<think><|start_header_id|>"
    tools = (
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "get_weather"}},
    )

    @property
    def zebra(self) -> Family:
        [family] = families_in(invented)
        return family

    def test_it_is_recognised(self) -> None:
        assert family_of(self.template).name == "llama"
        assert family_of(self.template, (*FAMILIES, self.zebra)) is self.zebra

    def test_its_answers_are_read(self) -> None:
        text = '{{muse}}Hm.{{/muse}}Look: {{run}}now={"a": 1}{{/run}}'
        assert told(self.zebra, text) == told(
            "qwen",
            '<think>Hm.</think>Look: <tool_call>{"name": "now", "arguments": {"a": 1}}</tool_call>',
        )

    def test_its_calls_are_forced(self) -> None:
        form = AnswerFormat(
            family=self.zebra, template=self.template, is_thinking=False, may_think=False
        )
        request = GenerateRequest(
            messages=(ChatMessage(role="user", content="hi"),),
            tools=self.tools,
            tool_choice="required",
        )
        grammar = answer_grammar(request, form)
        assert grammar is not None
        constraint = demo_grammars().compile(grammar.text)
        assert fits(constraint, "{{run}}now={}{{/run}}")
        assert fits(constraint, "{{run}}now={}{{/run}}{{run}}get_weather={}{{/run}}")
        assert not fits(constraint, "{{run}}never={}{{/run}}")
        assert not fits(constraint, '[{"name": "now", "arguments": {}}]')
        assert not fits(constraint, "Hello")

    def test_its_forced_calls_are_read_as_any_others(self) -> None:
        assert self.zebra.forced(self.template) is self.zebra


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ '<tool_call>' }}", "qwen"),
        ("{{ '<think>' }}", "qwen"),
        ("<tool_call>{{ n }}<arg_key>", "glm"),
        ("<|start_header_id|>{{ '<|python_tag|>' }}", "llama"),
        ("<|start_header_id|>", "llama"),
        ("<|start_header_id|><tool_call>", "qwen"),
        ("[INST] [TOOL_CALLS]", "mistral"),
        ("<｜Assistant｜><think>", "deepseek"),
        ("<|im_middle|><|tool_calls_section_begin|>", "kimi"),
        ("<|turn><|channel>thought <|tool_call>", "gemma"),
        ("<start_of_turn>", "plain"),
        ("<|start|>assistant<|channel|>final<|message|>", "gpt-oss"),
        ("<|start_of_role|> <|tool_call|>", "granite"),
        ("<|start_of_role|> <tool_call>", "granite"),
        ("<|user|> <|end|> <|assistant|>", "phi"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|> Action:", "command-r"),
        ("<minimax:tool_call><think>", "minimax"),
        ("<tool_calls> <think>", "minimax-m1"),
        ("]<]minimax[>[<tool_call> <mm:think>", "minimax-m3"),
        ("'｜DSML｜' <｜Assistant｜> <think>", "dsml"),
        ("'<|open|>' + tag + '<|sep|>' '<|close|>'", "kimi-k3"),
        ("<seed:think> <function=", "seed"),
        ("<TOOLCALL> <think>", "nemotron"),
        ("List of tools: [ </think>", "lfm"),
        ("<|header_start|>", "llama4"),
        ("<|tools_prefix|>", "apertus"),
        ("<|assistant|><|user|><|end|> [BEGIN FINAL RESPONSE]", "apriel"),
        ("'<tool_call{}>'.format(':opensource')", "hunyuan"),
        ("<|tool_call:begin|> <|think|>", "solar"),
        ("<|role_sep|> <|message_sep|>", "gigachat"),
        ('<function name="x"> <think>', "minicpm"),
        ("<|start_header_id|> <{start_tag}={function_name}>", "functionary"),
        ("<|start_header_id|> >>>all", "functionary-v3.2"),
        ("<thought>", "exaone"),
        ("<thought> <tool_call>", "qwen"),
        ("<tool_calls> <tool_call>", "qwen"),
        ("<|tool_call|> <tool_call>", "phi"),
        ("{{ messages[0].content }}", "plain"),
        ("", "plain"),
    ],
)
def test_templates_show_their_family(source: str, name: str) -> None:
    assert family_of(source).name == name
