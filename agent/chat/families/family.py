"""The record of a family: how the family is recognised, read and written."""

from dataclasses import dataclass, replace
from enum import IntEnum

from .call_syntax import JSON_CALLS, CallSyntax
from .notations import Notation, json_of_known

_JSON = (("", JSON_CALLS),)
"""The syntaxes of a family whose own notation has no grammar here."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The call notation of a family.

    A call begins with one of `openings` and continues in the first of `notations` that matches.
    `closings` may follow a call. `wrappers` may enclose several calls. `inner` markers occur
    within a call.
    """

    openings: tuple[str, ...]
    notations: tuple[Notation, ...]
    closings: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markers that enclose reasoning."""

    opening: str
    closing: str


THINK = ReasoningMarkers("<think>", "</think>")
"""The reasoning markers that most families use."""


class Evidence(IntEnum):
    """The strength of a hint.

    If a template has hints of several families, the lowest value wins.
    """

    OWN = 0
    """The hint is only in this family's templates."""
    STRONG = 1
    """Some other families' templates have the hint too, along with a hint of their own."""
    WEAK = 2
    """Other families' templates have the hint too; a strong hint in the same template wins."""
    TURNS = 3
    """The hint marks turns. Families trained from it have the hint too, and their own."""
    REASONING = 4
    """The hint marks reasoning. Unrelated families have it too."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Texts that occur together only in templates of the family. `evidence` says how reliably."""

    texts: tuple[str, ...]
    evidence: Evidence = Evidence.OWN


def hints(*texts: str, evidence: Evidence = Evidence.OWN) -> tuple[Hint, ...]:
    """Return one hint for each of `texts`."""
    return tuple(Hint((text,), evidence) for text in texts)


@dataclass(frozen=True, slots=True)
class Summary:
    """The columns for reasoning and calls in the table of families in `docs/templates.md`."""

    reasoning: str
    calls: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of models.

    To recognise the family: any of `hints`. A family without hints is only chosen by its name.

    To read: `wrappers` are markers around content, and `openers` are markers at the beginning of
    content; both are removed. An answer may begin with a call in one of the notations `bare`,
    without a marker. `inner` are control tokens that occur within markers. With `has_channels` the
    answer is a sequence of messages with headers.

    To write: the first of `syntaxes` whose text occurs in the template. Models of one family may
    differ in notation; the template shows the notation on which the model was trained.
    """

    name: str
    summary: Summary
    hints: tuple[Hint, ...] = ()
    reasoning: ReasoningMarkers | None = None
    calls: Calls | None = None
    wrappers: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    bare: tuple[Notation, ...] = ()
    inner: tuple[str, ...] = ()
    has_channels: bool = False
    syntaxes: tuple[tuple[str, CallSyntax], ...] = ()

    def markers(self, *, has_tools: bool) -> tuple[str, ...]:
        """Return the markers that the parser needs to see in the text."""
        found = [*self.wrappers, *self.inner]
        if self.reasoning:
            found += [self.reasoning.opening, self.reasoning.closing]
        if self.calls and has_tools:
            calls = self.calls
            found += [*calls.openings, *calls.closings, *calls.wrappers, *calls.inner]
        return tuple(dict.fromkeys(found))

    def evidence(self, template: str) -> Evidence | None:
        """Return the strongest evidence in a template's source; `None` if there is none."""
        found = (
            hint.evidence for hint in self.hints if all(text in template for text in hint.texts)
        )
        return min(found, default=None)

    def syntax(self, template: str) -> CallSyntax | None:
        """Return how a model with that template writes calls; `None` if the family does not say."""
        return next((syntax for text, syntax in self.syntaxes if text in template), None)

    def forced(self, template: str) -> "Family":
        """Return the family for reading forced calls.

        Without a syntax for `template`, forced calls are `JSON_CALLS`.
        """
        if self.syntax(template) is not None:
            return self
        return replace(self, calls=None, bare=(json_of_known,), syntaxes=_JSON)

    def told(self, template: str) -> "Family":
        """Return the family for a model that an instruction tells how to write calls.

        The instruction describes `JSON_CALLS` if the model's own notation is unknown or is not
        JSON. Calls in the model's own notation are read as well.
        """
        syntax = self.syntax(template)
        if syntax is not None and syntax.arguments == "json":
            return self
        return replace(self, bare=(*self.bare, json_of_known), syntaxes=_JSON)
