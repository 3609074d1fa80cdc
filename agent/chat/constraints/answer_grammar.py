"""The grammar of a whole answer: reasoning first, then calls, or content in the requested format.

Reasoning is unconstrained up to the family's end marker, and white space may follow the marker. An
answer that must call a function contains only calls. If the family's call notation has no grammar
here, forced calls are a JSON list.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from ....shared.errors import InvalidRequest, NotSupported
from ....shared.inference import (
    GbnfGrammar,
    GenerateRequest,
    Grammar,
    JsonSchemaGrammar,
    LarkGrammar,
    NamedTool,
    RegexGrammar,
)
from ..families.call_syntax import JSON_CALLS, CallSyntax
from ..families.family import Family
from ..parsing.harmony import ENDS
from ..parsing.tools import Function, Tools
from .bounds import check_grammar, check_schema
from .call_grammar import CallGrammar
from .gbnf import GbnfError, lark_of
from .lark import MAX_SCHEMAS, Lark, TooMuchWorkError
from .schema import Schema, Unenforced

MOST_TOLD = 16
"""Maximum calls in an answer of a model that learns its tools from an instruction.

Such models rarely stop calling by themselves.
"""

_SPACE = r'("\n" | "\n\n")?'


@dataclass(frozen=True, slots=True)
class AnswerGrammar:
    """The grammar of one answer. `text` is llguidance's input.

    If the grammar is invalid, the error names the schema in `schemas` that caused it, or else the
    request's `field`. `unenforced` lists keywords of the `lenient` schemas that the call notation
    cannot enforce.
    """

    text: str
    field: str
    schemas: tuple[Schema, ...]
    lenient: tuple[Schema, ...] = ()
    unenforced: tuple[Unenforced, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFormat:
    """The form in which the answer to a conversation will be parsed.

    `is_thinking`: the prompt ends within reasoning. `may_think`: the answer may begin with
    reasoning. `control` maps the family's markers that are control tokens to their ids. `is_told`:
    the template ignores tools, so an instruction describes the tools to the model.
    """

    family: Family
    template: str
    is_thinking: bool
    may_think: bool
    control: Mapping[str, int] = field(default_factory=dict)
    is_told: bool = False


def answer_grammar(request: GenerateRequest, form: AnswerFormat | None) -> AnswerGrammar | None:
    """Return the grammar of the answer; `None` if the answer is unconstrained.

    Without `form` the whole answer is content. Raises `RequestError` for unsupported constraints.
    """
    functions = _functions(request)
    is_forced = must_call(request)
    is_limited = request.parallel_tool_calls is False or any(each.is_strict for each in functions)
    if request.grammar is None and not (functions and (is_forced or is_limited)):
        return None
    if request.ignore_eos:
        raise InvalidRequest(
            "`ignore_eos` cannot be used with `grammar` or constrained calls: they decide where an "
            "answer ends",
            field="ignore_eos",
        )
    syntax = form.family.syntax(form.template) if form and functions else None
    if form and functions and is_forced:
        syntax = syntax or JSON_CALLS
    if functions and syntax is None:
        if request.grammar is None and not is_forced and request.parallel_tool_calls is not False:
            return None  # strict functions are best effort here
        raise _no_syntax(request)
    blamed = "grammar" if request.grammar is not None and not is_forced else "tools"
    _check_bounds(request, functions)
    try:
        return _written(request, _Writer(form), functions, syntax, blamed)
    except TooMuchWorkError as error:
        raise InvalidRequest(f"`{blamed}` cannot be served: {error}", field=blamed) from error


def _written(
    request: GenerateRequest,
    writer: "_Writer",
    functions: Sequence[Function],
    syntax: CallSyntax | None,
    blamed: str,
) -> AnswerGrammar:
    is_forced = must_call(request)
    ways = []
    if syntax is not None:
        may_be_text = not is_forced and request.grammar is None
        # A named function is called once: that is what was asked for.
        is_one = isinstance(request.tool_choice, NamedTool)
        most = 1 if is_one else writer.most_calls(request)
        ways.append(writer.calls(functions, syntax, most=most, may_be_text=may_be_text))
    if request.grammar is not None and not is_forced:
        ways.append(writer.content(request.grammar))
    return AnswerGrammar(
        writer.finish(ways),
        blamed,
        tuple(writer.schemas),
        tuple(writer.lenient),
        tuple(writer.unenforced),
    )


def _check_bounds(request: GenerateRequest, functions: Sequence[Function]) -> None:
    """Raise `InvalidRequest` if constraints are too long, too deep or too repetitive.

    The error names the field. This check runs before any other work on the constraints.
    """
    match request.grammar:
        case RegexGrammar(pattern=pattern):
            check_grammar(pattern, "grammar.pattern")
        case GbnfGrammar(grammar=grammar) | LarkGrammar(grammar=grammar):
            check_grammar(grammar, "grammar.grammar")
        case _:
            pass
    schemas = [(each.field, each.parameters) for each in functions]
    if isinstance(request.grammar, JsonSchemaGrammar):
        schemas.append(("grammar.schema", request.grammar.schema))
    size = 0
    for place, schema in schemas:
        size += len(json.dumps(schema))
        if size > MAX_SCHEMAS:
            raise InvalidRequest(
                f"`{place}` cannot be served: the schemas up to here have {size} characters; "
                f"at most {MAX_SCHEMAS} are allowed",
                field=place,
            )
        check_schema(schema, place)


def _functions(request: GenerateRequest) -> tuple[Function, ...]:
    """Return the callable functions.

    Raises `InvalidRequest` if `tool_choice` names an unknown function.
    """
    if request.tool_choice == "none":
        return ()
    functions = Tools(request.tools or ()).functions
    if isinstance(choice := request.tool_choice, NamedTool):
        functions = tuple(each for each in functions if each.name == choice.name)
        if not functions:
            raise InvalidRequest(
                f"`tool_choice`: there is no function {choice.name[:100]!r} among the `tools`",
                field="tool_choice",
            )
    if request.tool_choice == "required" and not functions:
        raise InvalidRequest(
            "`tool_choice`: there is no function among the `tools`", field="tool_choice"
        )
    return functions


def must_call(request: GenerateRequest) -> bool:
    """Return whether the answer has to be a call."""
    return request.tool_choice == "required" or isinstance(request.tool_choice, NamedTool)


def _no_syntax(request: GenerateRequest) -> NotSupported:
    is_forced = must_call(request)
    blamed = "tool_choice" if is_forced else "parallel_tool_calls"
    if not is_forced and request.parallel_tool_calls is not False:
        blamed = "grammar"
    return NotSupported(
        f"`{blamed}`: calls cannot be constrained in the notation that this model writes them in",
        field=blamed,
    )


class _Writer:
    def __init__(self, form: AnswerFormat | None) -> None:
        self._format = form
        self._lark = Lark(form.control if form else {})
        self.schemas: list[Schema] = []
        self.lenient: list[Schema] = []
        self.unenforced: list[Unenforced] = []

    def most_calls(self, request: GenerateRequest) -> int | None:
        """Return the maximum number of calls in the answer; `None` if there is no limit."""
        are_many = request.parallel_tool_calls
        if self._format is not None and self._format.is_told:
            return MOST_TOLD if are_many else 1
        return 1 if are_many is False else None

    def finish(self, ways: Sequence[str]) -> str:
        return self._lark.grammar(f"{self._reasoning()} ({' | '.join(ways)})")

    def content(self, grammar: Grammar) -> str:
        return self._in_final(self._as_wanted(grammar))

    def calls(
        self,
        functions: Sequence[Function],
        syntax: CallSyntax,
        *,
        most: int | None,
        may_be_text: bool,
    ) -> str:
        """Return an expression for up to `most` calls.

        With `may_be_text`, the answer may also be text alone, or text followed by calls.
        """
        grammar = CallGrammar(self._lark, syntax, functions)
        self.schemas += grammar.schemas
        self.lenient += grammar.lenient
        self.unenforced += grammar.unenforced
        calls = grammar.calls(most=most)
        if not may_be_text:
            return f"{_SPACE} {calls}"
        if syntax.opening is None:
            return f"{calls} | {self._text(like=() if self._has_channels else (syntax.text,))}"
        rest = grammar.calls(most=most, without_opening=True)
        return f"{self._text(end=syntax.opening)} {rest} | {self._text()}"

    def _text(self, *, like: Sequence[str] = (), end: str = "") -> str:
        """Return an expression for text without reasoning and calls, followed by `end`."""
        lark, form = self._lark, self._format
        if form is None or form.family.has_channels:
            return self._in_final(lark.text(like=like, without=ENDS))
        family = form.family
        barred = list(family.calls.openings) if family.calls else []
        barred += family.wrappers if family.bare else ()
        barred += [end] if end else []
        begins_not = family.reasoning.opening if family.reasoning else ""
        text = lark.text(like=like, without=barred, begins_not=begins_not, end=end)
        if shown := [lark.literal(each) for each in family.wrappers if lark.has_control(each)]:
            part = lark.text(without=barred, begins_not=begins_not)
            return lark.rule(f"({part} | {' | '.join(shown)})* {text}")
        return text

    def _as_wanted(self, grammar: Grammar) -> str:
        match grammar:
            case JsonSchemaGrammar(schema=schema, strict=strict):
                return self._json(Schema("grammar.schema", schema, is_lenient=not strict))
            case RegexGrammar(pattern=pattern):
                return self._lark.regex(pattern)
            case GbnfGrammar(grammar=gbnf):
                try:
                    return self._lark.lark(lark_of(gbnf))
                except GbnfError as error:
                    field = "grammar.grammar"
                    raise InvalidRequest(f"`{field}`: {error}", field=field) from error
            case LarkGrammar(grammar=lark):
                return self._lark.lark(lark)
            case _:
                assert_never(grammar)

    def _json(self, schema: Schema) -> str:
        self.schemas.append(schema)
        if schema.is_lenient:
            self.lenient.append(schema)
        return self._lark.json(schema.schema, is_lenient=schema.is_lenient)

    @property
    def _has_channels(self) -> bool:
        return self._format is not None and self._format.family.has_channels

    def _in_final(self, content: str) -> str:
        if not self._has_channels:
            return content
        return f"{self._lark.literal('<|channel|>final<|message|>')} {content}"

    def _reasoning(self) -> str:
        form, lark = self._format, self._lark
        if form is None:
            return ""
        if form.family.has_channels:
            channel, message = lark.literal("<|channel|>"), lark.literal("<|message|>")
            rest = f"{lark.text(without=ENDS, end='<|end|>')} {lark.literal('<|start|>assistant')}"
            return f'({channel} ("analysis" | "commentary") {message} {rest})*'
        markers = form.family.reasoning
        if markers is None or not (form.is_thinking or form.may_think):
            return ""
        rest = f"{lark.up_to(markers.closing)} {_SPACE}"
        return rest if form.is_thinking else f"({self._begun(markers.opening)} {rest})?"

    def _begun(self, opening: str) -> str:
        """Return an expression for the marker, possibly after new lines.

        If the marker is ordinary text, the new lines are part of its terminal: otherwise the lexer
        would read them as answer text.
        """
        lark = self._lark
        if lark.has_control(opening):
            return f"{_SPACE} {lark.literal(opening)}"
        return lark.text(like=(r"\n{0,2}",), end=opening)
