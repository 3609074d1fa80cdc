"""How each family writes calls, where a grammar can say so.

A family's notation may depend on the model: the template shows which one it was trained on. Those
that write arguments in a notation of their own instead of JSON are not here.
"""

from dataclasses import dataclass

from .families import FamilyName


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """`before` all calls and `after` them, `begin` and `end` around the arguments of each.

    In `begin` stand `NAME` for the function's name, written as in a JSON string where it is
    `quoted`, and `NUMBER` for any number. Without a `between` there can only be one call. `opening`
    is the marker that the whole begins with; without one, an answer with calls begins with them.
    """

    begin: str
    end: str = ""
    between: str | None = None
    before: str = ""
    after: str = ""
    opening: str | None = None
    is_quoted: bool = True


_IN_TAGS = CallSyntax(
    '<tool_call>\n{"name": "NAME", "arguments": ',
    "}\n</tool_call>",
    between="\n",
    opening="<tool_call>",
)


def _list_after(
    opening: str, after: str, begin: str = '{"name": "NAME", "arguments": '
) -> CallSyntax:
    return CallSyntax(
        begin, "}", between=", ", before=f"{opening}[", after=f"]{after}", opening=opening
    )


_LLAMA = CallSyntax('{"name": "NAME", "parameters": ', "}")
_MISTRAL_LIST = _list_after("[TOOL_CALLS]", "")
_MISTRAL = CallSyntax("[TOOL_CALLS]NAME[ARGS]", between="", opening="[TOOL_CALLS]", is_quoted=False)
_DEEPSEEK = CallSyntax(
    "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    between="",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    is_quoted=False,
)
_DEEPSEEK_R1 = CallSyntax(
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
    "\n```<｜tool▁call▁end｜>",
    between="\n",
    before="<｜tool▁calls▁begin｜>",
    after="<｜tool▁calls▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    is_quoted=False,
)
_KIMI = CallSyntax(
    "<|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    between="",
    before="<|tool_calls_section_begin|>",
    after="<|tool_calls_section_end|>",
    opening="<|tool_calls_section_begin|>",
    is_quoted=False,
)
_COMMAND_R = _list_after(
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    '{"tool_call_id": "NUMBER", "tool_name": "NAME", "parameters": ',
)
_COMMAND_R_PLUS = _list_after("Action: ```json\n", "\n```", '{"tool_name": "NAME", "parameters": ')
_GRANITE = _list_after("<|tool_call|>", "")
_PHI = _list_after("<|tool_call|>", "<|/tool_call|>")
_CHANNELS = CallSyntax(
    "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>", is_quoted=False
)


def call_syntax(family: FamilyName, template: str) -> CallSyntax | None:
    """How a model of `family` with that template writes calls; `None` where it cannot be said."""
    match family:
        case "qwen":
            return None if "<function=" in template else _IN_TAGS
        case "llama":
            return _LLAMA
        case "mistral":
            return _MISTRAL if "[ARGS]" in template else _MISTRAL_LIST
        case "deepseek":
            return _DEEPSEEK_R1 if "```json" in template else _DEEPSEEK
        case "kimi":
            return _KIMI
        case "command-r":
            return _COMMAND_R if "<|START_ACTION|>" in template else _COMMAND_R_PLUS
        case "granite":
            return _GRANITE if "<|tool_call|>" in template else _IN_TAGS
        case "phi":
            return _PHI
        case "gpt-oss":
            return _CHANNELS
        case _:
            return None
