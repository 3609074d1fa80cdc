"""Which family of models a chat template was written for: its source has their markers."""

from .families import family_named
from .family import Family, FamilyName

_HINTS: tuple[tuple[FamilyName, tuple[tuple[str, ...], ...]], ...] = (
    ("gpt-oss", (("<|channel|>", "<|message|>"),)),
    ("gemma", (("<|tool_call>",), ("<|channel>",))),
    ("dsml", (("｜DSML｜",),)),
    ("deepseek", (("<｜tool▁calls▁begin｜>",), ("<｜Assistant｜>",))),
    ("kimi", (("<|tool_calls_section_begin|>",), ("<|im_middle|>",))),
    ("mistral", (("[TOOL_CALLS]",), ("[THINK]",), ("[INST]",))),
    ("command-r", (("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),)),
    ("kimi-k3", (("<|open|>", "<|close|>", "<|sep|>"),)),
    ("solar", (("<|tool_call:begin|>",),)),
    ("hunyuan", (("<tool_call{}>", ":opensource"), ("<tool_call:opensource>",))),
    ("seed", (("<seed:tool_call>",), ("<seed:think>",))),
    ("nemotron", (("<TOOLCALL>",),)),
    ("lfm", (("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: [",))),
    ("llama4", (("<|header_start|>",),)),
    ("apertus", (("<|tools_prefix|>",),)),
    ("apriel", (("[BEGIN FINAL RESPONSE]",),)),
    ("gigachat", (("<|role_sep|>", "<|message_sep|>"),)),
    ("minimax-m3", (("<mm:think>",),)),
    ("minimax", (("<minimax:tool_call>",),)),
    ("glm", (("<arg_key>",), ("[gMASK]",))),
    ("granite", (("<|start_of_role|>",),)),
    ("phi", (("<|tool_call|>",), ("<|assistant|>", "<|user|>", "<|end|>"), ("<|im_sep|>",))),
    ("qwen", (("<tool_call>",),)),
    ("minimax-m1", (("<tool_calls>",),)),
    ("minicpm", (('<function name="',),)),
    ("exaone", (("<thought>",),)),
    ("functionary-v3.2", ((">>>all",),)),
    ("functionary", (("<{start_tag}=",),)),
    ("llama", (("<|python_tag|>",), ("<|start_header_id|>",))),
    ("qwen", (("<think>",),)),  # models of other families that reason in the same way
)
"""Families, each with sets of texts: its templates have all of one. The first that fits counts."""


def family_of(template: str) -> Family:
    """The family that a chat template's source shows; `plain` if it shows none."""
    names = (name for name, hints in _HINTS if any(_has_all(template, each) for each in hints))
    return family_named(next(names, "plain"))


def _has_all(template: str, hint: tuple[str, ...]) -> bool:
    return all(each in template for each in hint)
