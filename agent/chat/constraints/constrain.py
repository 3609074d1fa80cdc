"""Compiles a request's constraints on its answer, or reports which field is wrong and why."""

from contextlib import suppress
from dataclasses import dataclass

from ....shared.errors import InvalidRequest, NotSupported
from ....shared.inference import GenerateRequest, Notice
from ...engine.grammar.constraint import Constraint, ConstraintError
from ...engine.grammar.grammars import Ended, Grammars, TooCostlyError
from .answer_grammar import AnswerFormat, AnswerGrammar, answer_grammar
from .schema import Complaint, Unenforced, keywords_in, notice_of, places_of, schema_place

_MAX_REASON = 300
_PLACES = {
    "json_schema": "grammar.schema",
    "regex": "grammar.pattern",
    "gbnf": "grammar.grammar",
    "lark": "grammar.grammar",
}


@dataclass(frozen=True, slots=True)
class ConstrainedAnswer:
    """The compiled grammar of an answer. A notice tells the client if the grammar enforces less."""

    constraint: Constraint
    notice: Notice | None


def constrain(
    request: GenerateRequest,
    form: AnswerFormat | None,
    grammars: Grammars | None,
    ended: Ended | None = None,
) -> ConstrainedAnswer | None:
    """Compile the request's constraints; return `None` for a request without constraints.

    Without `form` the whole answer is content. Compilation stops once the request has `ended`.
    Raises a `RequestError` that names the field.
    """
    grammar = answer_grammar(request, form)
    if grammar is None:
        return None
    if grammars is None:
        raise NotSupported(
            f"`{grammar.field}`: this agent cannot constrain answers", field=grammar.field
        )
    try:
        constraint = grammars.compile(grammar.text, ended)
    except TooCostlyError as error:
        raise _refusal(_field(grammar, request), str(error)) from error
    except ConstraintError as error:
        field, reason = _field(grammar, request), str(error)
        with suppress(TooCostlyError), grammars.judging(ended) as complaint:
            field, reason = _blamed(grammar, reason, request, complaint)
        raise _refusal(field, reason) from error
    return ConstrainedAnswer(constraint, notice_of(_unenforced(grammar, constraint)))


def _unenforced(grammar: AnswerGrammar, constraint: Constraint) -> list[Unenforced]:
    """Return the keywords that the notation or the compiler does not enforce, sorted by place."""
    by_compiler = places_of(keywords_in(constraint.warnings), grammar.lenient)
    return sorted({*grammar.unenforced, *by_compiler})


def _blamed(
    grammar: AnswerGrammar, reason: str, request: GenerateRequest, complaint: Complaint
) -> tuple[str, str]:
    """Return the field that is wrong, and the reason."""
    found = (schema_place(schema, complaint) for schema in grammar.schemas)
    return next(filter(None, found), None) or (_field(grammar, request), reason)


def _field(grammar: AnswerGrammar, request: GenerateRequest) -> str:
    if grammar.field == "grammar" and request.grammar is not None:
        return _PLACES[request.grammar.type]
    fields = {schema.field for schema in grammar.schemas}
    return fields.pop() if len(fields) == 1 else grammar.field


def _refusal(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"`{field}` cannot be served: {_line(reason)}", field=field)


def _line(reason: str) -> str:
    """Return the error as one line, without llguidance's listing of the generated grammar."""
    shown = reason.split("\n   1 |")[0]
    return " ".join(shown.split())[:_MAX_REASON]
