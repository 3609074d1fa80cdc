"""What requests need of an agent beyond text."""

from typing import Any

import pytest

from arriero.shared.inference import (
    ChatMessage,
    GbnfGrammar,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    JsonSchemaGrammar,
    LarkGrammar,
    NamedTool,
    RegexGrammar,
    TextPart,
)
from arriero.shared.inference.abilities import ABILITIES, Ability, field_of, lacking, needs_of

HI = (ChatMessage(role="user", content="hi"),)
TOOL = {"type": "function", "function": {"name": "look"}}
SAID = (*HI, ChatMessage(role="assistant", content="well"))

PICTURE = ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,AA=="))
SEEN = (*HI, ChatMessage(role="user", content=(TextPart(type="text", text="so?"), PICTURE)))

ASKED: list[tuple[Ability, str, dict[str, Any]]] = [
    ("vision", "messages[1].content[1].image_url.url", {"messages": SEEN}),
    ("token_ids", "prompt", {"prompt": (1, 2)}),
    ("suffix", "suffix", {"prompt": "a", "suffix": "b"}),
    ("logprobs", "logprobs", {"logprobs": True}),
    ("prompt_logprobs", "prompt_logprobs", {"logprobs": True, "prompt_logprobs": True}),
    ("tools", "tools", {"tools": (TOOL,)}),
    ("forced_calls", "tool_choice", {"tools": (TOOL,), "tool_choice": "required"}),
    ("forced_calls", "tool_choice", {"tools": (TOOL,), "tool_choice": NamedTool(name="look")}),
    ("json_schema", "grammar", {"grammar": JsonSchemaGrammar(type="json_schema", schema={})}),
    ("gbnf", "grammar", {"grammar": GbnfGrammar(type="gbnf", grammar='root ::= "a"')}),
    ("lark", "grammar", {"grammar": LarkGrammar(type="lark", grammar='start: "a"')}),
    ("regex", "grammar", {"grammar": RegexGrammar(type="regex", pattern="a")}),
    ("thinking", "thinking", {"thinking": False}),
    ("template_options", "chat_template_kwargs", {"chat_template_kwargs": {"a": 1}}),
    ("template_options", "add_generation_prompt", {"add_generation_prompt": False}),
    (
        "continue_final_message",
        "continue_final_message",
        {"messages": SAID, "continue_final_message": True},
    ),
    ("logit_bias", "logit_bias", {"logit_bias": {"5": 1.0}}),
    ("token_limits", "allowed_token_ids", {"allowed_token_ids": (3,)}),
    ("token_limits", "bad_words", {"bad_words": ("no",)}),
    ("top_k", "top_k", {"top_k": 0}),
    ("top_k", "min_p", {"min_p": 0.1}),
    ("penalties", "presence_penalty", {"presence_penalty": 0.5}),
    ("llama_samplers", "mirostat", {"mirostat": 2}),
    ("stop_tokens", "stop_token_ids", {"stop_token_ids": (3,)}),
    ("stop_tokens", "min_tokens", {"min_tokens": 2}),
    ("ignore_eos", "ignore_eos", {"ignore_eos": True}),
    ("n_discard", "n_discard", {"n_discard": 4}),
    ("truncate_prompt", "truncate_prompt_tokens", {"truncate_prompt_tokens": -1}),
    ("prefill_only", "prefill_only", {"prefill_only": True}),
    ("prompt_store", "cache_key", {"cache_key": "k"}),
]


def request(**fields: Any) -> GenerateRequest:
    given = fields.keys() & {"prompt", "messages"}
    return GenerateRequest(**({} if given else {"messages": HI}), **fields)


@pytest.mark.parametrize(("ability", "field", "fields"), ASKED)
def test_a_field_needs_its_ability_and_is_named(
    ability: Ability, field: str, fields: dict[str, Any]
) -> None:
    asked = request(**fields)
    assert ability in needs_of(asked)
    assert field_of(asked, ability) == field
    error = lacking(asked, ABILITIES - {ability}, "that server cannot")
    assert error is not None
    assert (error.field, error.message) == (field, f"`{field}`: that server cannot serve it")
    assert lacking(asked, ABILITIES, "that server cannot") is None


def test_only_what_is_looked_for_is_needed() -> None:
    asked = request(messages=SEEN, logprobs=True)
    assert needs_of(asked) == {"messages", "vision", "logprobs"}
    assert needs_of(asked, frozenset(("vision", "tools", "tokenize"))) == {"vision"}


def test_plain_requests_need_only_their_form() -> None:
    assert needs_of(request()) == {"messages"}
    plain = request(temperature=0.5, top_p=0.9, seed=4, stop=("a",), max_tokens=5)
    assert needs_of(plain) == {"messages"}
    assert needs_of(GenerateRequest(prompt="a")) == {"prompt"}


def test_what_turns_a_sampler_off_is_asked_for_unless_it_is_off_everywhere() -> None:
    assert needs_of(request(repeat_penalty=1.0, mirostat=0)) == {
        *("messages", "top_k", "llama_samplers")
    }
    assert needs_of(request(presence_penalty=0.0, frequency_penalty=0)) == {"messages"}
    assert needs_of(request(logit_bias={}, stop_token_ids=(), min_tokens=0)) == {"messages"}


def test_tools_that_are_hidden_need_nothing() -> None:
    assert needs_of(request(tools=(TOOL,), tool_choice="none")) == {"messages"}
    assert needs_of(request(tools=(TOOL,), tool_choice="auto")) == {"messages", "tools"}
