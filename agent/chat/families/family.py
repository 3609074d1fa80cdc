"""What a record of a family says: how the family is recognised, read and written."""

from dataclasses import dataclass, replace
from enum import IntEnum

from .call_syntax import JSON_CALLS, CallSyntax
from .notations import Notation, json_of_known

_JSON = (("", JSON_CALLS),)
"""Syntaxes of a family whose own notation cannot be written."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How a family writes calls: after one of `openings`, in the first of `notations` that fits.

    `closings` may follow; `wrappers` may stand around several calls; `inner` markers are within.
    """

    openings: tuple[str, ...]
    notations: tuple[Notation, ...]
    closings: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The markers around reasoning."""

    opening: str
    closing: str


THINK = ReasoningMarkers("<think>", "</think>")
"""The markers around reasoning that most families use."""


class Evidence(IntEnum):
    """How much a hint says. Where a template has several families' hints, the lowest counts."""

    OWN = 0
    """Only this family's templates have it."""
    STRONG = 1
    """Some other families' templates have it too, beside hints of their own."""
    WEAK = 2
    """Other families' templates have it too, and a strong hint says more where there are both."""
    TURNS = 3
    """It marks turns. Families that were trained from this one have it beside their own hints."""
    REASONING = 4
    """It marks reasoning. Families of all kinds have it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Texts that only a template of the family has all of, as far as the `evidence` goes."""

    texts: tuple[str, ...]
    evidence: Evidence = Evidence.OWN


def hints(*texts: str, evidence: Evidence = Evidence.OWN) -> tuple[Hint, ...]:
    """One hint for each of `texts`."""
    return tuple(Hint((text,), evidence) for text in texts)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the table of families in `docs/templates.md` says of reasoning and of calls."""

    reasoning: str
    calls: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of models.

    Recognised: by any of `hints`. Without hints a family is only chosen by its name.

    Read: `wrappers` stand around content and say nothing, and so do `openers`, at its beginning. An
    answer may begin with a call in one of the notations `bare`, without a marker. `inner` are
    control tokens that markers consist of. With `has_channels` the answer is a row of messages with
    headers.

    Written: as the first of `syntaxes` whose text the template has. A notation may depend on the
    model: the template shows which one it was trained on.
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
        """What has to show in the text for the parts of the answer to be recognised."""
        found = [*self.wrappers, *self.inner]
        if self.reasoning:
            found += [self.reasoning.opening, self.reasoning.closing]
        if self.calls and has_tools:
            calls = self.calls
            found += [*calls.openings, *calls.closings, *calls.wrappers, *calls.inner]
        return tuple(dict.fromkeys(found))

    def evidence(self, template: str) -> Evidence | None:
        """The strongest hint that a template's source has."""
        found = (
            hint.evidence for hint in self.hints if all(text in template for text in hint.texts)
        )
        return min(found, default=None)

    def syntax(self, template: str) -> CallSyntax | None:
        """How a model with that template writes calls; `None` where the record does not say."""
        return next((syntax for text, syntax in self.syntaxes if text in template), None)

    def forced(self, template: str) -> "Family":
        """How forced calls of a model with that template are read: as `JSON_CALLS` if need be."""
        if self.syntax(template) is not None:
            return self
        return replace(self, calls=None, bare=(json_of_known,), syntaxes=_JSON)

    def told(self, template: str) -> "Family":
        """How calls are written and read if an instruction tells the model how to write them.

        The model is told `JSON_CALLS` if its own notation is unknown, or is not JSON. Calls in its
        own notation are read as well.
        """
        syntax = self.syntax(template)
        if syntax is not None and syntax.arguments == "json":
            return self
        return replace(self, bare=(*self.bare, json_of_known), syntaxes=_JSON)
