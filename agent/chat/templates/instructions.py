"""Moves instructions (system and developer messages) to positions where a template shows them.

Clients send instructions anywhere: two at the beginning, or one after a user turn. Some templates
refuse that, and some silently drop them. Trial renders find such positions. Then:

- Several instructions at the beginning are merged into one message. If the template has no system
  message at all, they are merged into the user turn that follows.
- A later instruction goes into a neighbouring user turn, marked as instructions: the previous one,
  else the next one, else a new one. After a tool result, if no user turn may follow, it is appended
  to the result. This depends only on its neighbours, so the next request of the conversation begins
  with the same text.
- If a conversation has only instructions, a user turn is added.

Instructions that the template shows stay where they are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice, pairwise, product, takewhile, tee, zip_longest
from typing import Literal, NamedTuple

from ....shared.inference import ChatMessage, Role
from .turns import BEGINNING

Shows = Callable[[Sequence[ChatMessage]], bool]
"""Returns whether the template shows the contents of all these messages."""

_INSTRUCTIONS: tuple[Role, ...] = ("system", "developer")
_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "arriero_tool", "arguments": "{}"},
}


_Kind = Role | Literal["call"]
"""A role; assistant messages with calls are a kind of their own, as in templates."""


class _Place(NamedTuple):
    """A position of a message: a message with `role` between two other messages.

    `has_earlier`: an earlier instruction precedes the position.
    """

    role: Role
    previous: _Kind
    next: _Kind | None
    has_earlier: bool


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions that a template does not show. By default the template shows all."""

    has_developers: bool = True
    hides_first: frozenset[Role] = frozenset()
    hidden_pairs: frozenset[tuple[Role, Role]] = frozenset()
    hidden_places: frozenset[_Place] = frozenset()
    hidden_alone: frozenset[Role] = frozenset()

    def placed(self, messages: Iterable[ChatMessage]) -> list[ChatMessage]:
        """Return `messages` with instructions moved to where the template shows them."""
        known = [self._known(message) for message in messages]
        lead = self._merged(list(takewhile(_instructs, known)))
        rest = known[len(list(takewhile(_instructs, known))) :]
        if lead and not rest and lead[0].role in self.hidden_alone:
            rest = [BEGINNING]
        if lead and rest and rest[0].role == "user" and lead[0].role in self.hides_first:
            rest[0] = _with_text(rest[0], f"{_marked(lead)}\n\n{rest[0].text}")
            lead = []
        return [*lead, *self._later(rest, has_earlier=bool(lead))]

    def _known(self, message: ChatMessage) -> ChatMessage:
        if message.role == "developer" and not self.has_developers:
            return replace(message, role="system")
        return message

    def _merged(self, lead: list[ChatMessage]) -> list[ChatMessage]:
        hidden = self.hides_first or self.hidden_pairs.intersection(
            pairwise(message.role for message in lead)
        )
        if len(lead) < 2 or not hidden:
            return lead
        return [_with_text(lead[0], _joined(lead))]

    def _later(self, messages: Sequence[ChatMessage], *, has_earlier: bool) -> list[ChatMessage]:
        placed: list[ChatMessage] = []
        waiting = ""  # for the next user turn
        for group, following in _with_next(list(each) for _, each in groupby(messages, _instructs)):
            if waiting:
                group[0] = _with_text(group[0], f"{waiting}\n\n{group[0].text}")
                waiting = ""
            if not _instructs(group[0]):
                placed += group
                continue
            place = _Place(group[0].role, _kind(placed[-1]), following, has_earlier)
            if place not in self.hidden_places:
                placed += group
                has_earlier = True
            elif place.previous == "user" or place._replace(role="user") in self.hidden_places:
                placed[-1] = _with_text(placed[-1], f"{placed[-1].text}\n\n{_marked(group)}")
            elif following == "user":
                waiting = _marked(group)
            else:
                placed.append(ChatMessage(role="user", content=_marked(group)))
        return placed


def as_users(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return `messages` with instructions after the first turn changed to marked user turns."""
    lead = list(takewhile(_instructs, messages))
    rest = (
        ChatMessage(role="user", content=_marked([each])) if _instructs(each) else each
        for each in messages[len(lead) :]
    )
    return [*lead, *rest]


# ---- trying


def instructions_shown(shows: Shows, *, names_developers: bool) -> Instructions:
    """Find by trial renders which instructions a template shows.

    If the template's source does not mention developers, its model was not trained on developer
    messages, even if the template shows any role.
    """
    user = _said("user", 0)
    if not shows([user]):
        return Instructions(has_developers=names_developers)  # it needs variables unknown here
    first = {role for role in _INSTRUCTIONS if shows([_said(role, 1), user])}
    has_developers = names_developers and "developer" in first
    roles = _INSTRUCTIONS if has_developers else _INSTRUCTIONS[:1]
    return Instructions(
        has_developers=has_developers,
        hides_first=frozenset(roles) - first,
        hidden_pairs=frozenset(
            pair
            for pair in product(roles, roles)
            if not shows([_said(pair[0], 1), _said(pair[1], 2), user])
        ),
        hidden_places=frozenset(
            chain(
                _hidden_places(shows, roles, None),
                _hidden_places(shows, roles, "system") if "system" in first else (),
            )
        ),
        hidden_alone=frozenset(role for role in roles if not shows([_said(role, 1)])),
    )


def _hidden_places(shows: Shows, roles: Sequence[Role], lead: Role | None) -> Iterator[_Place]:
    begun = [_said(lead, 1)] if lead else []
    for before, after in product(_BEFORE, _AFTER):
        if not shows([*begun, *before, *after]):
            continue  # it refuses this sequence even without instructions
        previous, following = _kind(before[-1]), _kind(after[0]) if after else None
        for role in (*roles, "user") if previous == "tool" else roles:
            if not shows([*begun, *before, _said(role, 2), *after]):
                yield _Place(role, previous, following, lead is not None)


def _said(role: Role, number: int) -> ChatMessage:
    return ChatMessage(role=role, content=f"arriero-needle-{number}.")


_ASKED = _said("user", 3)
_CALLED = [
    ChatMessage(role="assistant", tool_calls=(_CALL,)),
    ChatMessage(role="tool", content="arriero-needle-4.", tool_call_id="call00001"),
]
_BEFORE = ([_ASKED], [_ASKED, _said("assistant", 5)], [_ASKED, *_CALLED])
_AFTER: tuple[list[ChatMessage], ...] = (
    [],
    [_said("user", 6)],
    [_said("assistant", 7), _said("user", 8)],
    _CALLED,
)


# ---- messages


def _instructs(message: ChatMessage) -> bool:
    return message.role in _INSTRUCTIONS


def _kind(message: ChatMessage) -> _Kind:
    return "call" if message.tool_calls else message.role


def _with_next(
    groups: Iterable[list[ChatMessage]],
) -> Iterator[tuple[list[ChatMessage], _Kind | None]]:
    """Return each group with the kind of the message after the group."""
    first, others = tee(groups)
    return zip_longest(first, (_kind(group[0]) for group in islice(others, 1, None)))


def _joined(messages: Sequence[ChatMessage]) -> str:
    return "\n\n".join(message.text for message in messages)


def _marked(messages: Sequence[ChatMessage]) -> str:
    return f"<instructions>\n{_joined(messages)}\n</instructions>"


def _with_text(message: ChatMessage, text: str) -> ChatMessage:
    return replace(message, content=text)
