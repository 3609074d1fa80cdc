"""Llama: JSON calls, with a marker or without."""

from ..call_syntax import CallSyntax
from ..family import THINK, Calls, Evidence, Family, Summary, hints
from ..notations import json_of_known, plain_json, python

_SYNTAX = CallSyntax('{"name": "NAME", "parameters": ', "}")

LLAMA = Family(
    name="llama",
    summary=Summary(
        "`<think>…</think>`", "JSON after `<|python_tag|>`, or alone naming a known tool"
    ),
    hints=hints("<|python_tag|>", "<|start_header_id|>", evidence=Evidence.TURNS),
    reasoning=THINK,
    calls=Calls(openings=("<|python_tag|>",), notations=(plain_json,)),
    bare=(json_of_known,),
    syntaxes=(("", _SYNTAX),),
)

LLAMA_4 = Family(
    name="llama4",
    summary=Summary(
        "none", "`<|python_start|>` around JSON or Python's calls, or alone as `llama`"
    ),
    hints=hints("<|header_start|>"),
    calls=Calls(("<|python_start|>",), (plain_json, python), ("<|python_end|>",)),
    bare=(json_of_known,),
    syntaxes=(("", _SYNTAX),),
)
