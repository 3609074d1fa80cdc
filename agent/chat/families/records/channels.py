"""Answers in channels: gpt-oss and Gemma."""

from ...parsing.gemma_calls import QUOTE
from ..call_syntax import CallSyntax
from ..family import Calls, Family, Hint, ReasoningMarkers, Summary, hints
from ..notations import gemma

GPT_OSS = Family(
    name="gpt-oss",
    summary=Summary("the channel `analysis`", "a message to `functions.name`"),
    hints=(Hint(("<|channel|>", "<|message|>")),),
    wrappers=(
        *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
        *("<|end|>", "<|call|>", "<|return|>"),
    ),
    has_channels=True,
    syntaxes=(
        (
            "",
            CallSyntax(
                "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
                is_quoted=False,
            ),
        ),
    ),
)

GEMMA = Family(
    name="gemma",
    summary=Summary("`<|channel>thought…<channel|>`", "`<|tool_call>call:name{…}<tool_call|>`"),
    hints=hints("<|tool_call>", "<|channel>"),
    reasoning=ReasoningMarkers("<|channel>thought", "<channel|>"),
    calls=Calls(("<|tool_call>",), (gemma,), ("<tool_call|>",), inner=(QUOTE,)),
    inner=("<|channel>",),
    syntaxes=(
        (
            "",
            CallSyntax(
                "<|tool_call>call:NAME",
                "<tool_call|>",
                between="",
                opening="<|tool_call>",
                is_quoted=False,
                arguments="gemma",
            ),
        ),
    ),
)
