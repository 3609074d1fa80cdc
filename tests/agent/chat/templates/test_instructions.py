"""Where templates show instructions, and what becomes of those that they would not show."""

import random
from collections.abc import Sequence

import pytest

from arriero.agent.chat.templates.instructions import (
    Instructions,
    Shows,
    as_users,
    instructions_shown,
)
from arriero.shared.inference import ChatMessage, Role, TextPart

Said = tuple[Role, str]
USER: Said = ("user", "u")
AGAIN: Said = ("user", "v")
ANSWER: Said = ("assistant", "a")
RESULT: Said = ("tool", "t")
LETTERS = dict(zip("sduat", ("system", "developer", "user", "assistant", "tool"), strict=True))


def letters(messages: Sequence[ChatMessage]) -> str:
    return "".join(message.role[0] for message in messages)


def only_first(messages: Sequence[ChatMessage]) -> bool:
    """A system's message at the beginning and nowhere else; no developers."""
    roles = letters(messages)
    return "s" not in roles[1:] and "d" not in roles


def never(messages: Sequence[ChatMessage]) -> bool:
    return not {"s", "d"} & set(letters(messages))


def with_turns(messages: Sequence[ChatMessage]) -> bool:
    """A system's message together with the first turn, as Gemma 3's template shows it."""
    return only_first(messages) and letters(messages) != "s"


def anywhere(_messages: Sequence[ChatMessage]) -> bool:
    return True


def first_and_alternating(messages: Sequence[ChatMessage]) -> bool:
    """As strict templates: users and answers alternate; what calls and results do is not seen."""
    turns = [m for m in messages if m.role in ("user", "assistant") and not m.tool_calls]
    alternates = all(m.role == ("user", "assistant")[i % 2] for i, m in enumerate(turns))
    return only_first(messages) and alternates


def last_wins(messages: Sequence[ChatMessage]) -> bool:
    """Only one system's message is shown, wherever it stands."""
    roles = letters(messages)
    return roles.count("s") + roles.count("d") <= 1


def placed(shows: Shows, *said: Said, names_developers: bool = False) -> list[Said]:
    habits = instructions_shown(shows, names_developers=names_developers)
    messages = habits.placed(ChatMessage(role=role, content=text) for role, text in said)
    return [(message.role, message.text) for message in messages]


def marked(*texts: str) -> str:
    return "<instructions>\n" + "\n\n".join(texts) + "\n</instructions>"


class TestAtTheBeginning:
    def test_several_are_merged_where_only_one_is_shown(self) -> None:
        said: list[Said] = [("system", "one"), ("developer", "two"), ("system", "three"), USER]
        assert placed(only_first, *said) == [("system", "one\n\ntwo\n\nthree"), USER]

    def test_they_stay_where_they_are_shown(self) -> None:
        said: list[Said] = [("system", "one"), ("system", "two"), USER]
        assert placed(anywhere, *said) == said

    def test_they_go_into_the_users_turn_where_there_is_no_system(self) -> None:
        said: list[Said] = [("system", "one"), ("developer", "two"), USER, ANSWER]
        assert placed(never, *said) == [("user", f"{marked('one', 'two')}\n\nu"), ANSWER]

    def test_without_a_users_turn_they_are_left_to_the_template(self) -> None:
        said: list[Said] = [("system", "one"), ANSWER]
        assert placed(never, *said) == said

    def test_alone_they_get_a_users_turn_where_they_would_not_be_shown(self) -> None:
        begun = ("user", "Begin.")
        assert placed(never, ("system", "one")) == [("user", f"{marked('one')}\n\nBegin.")]
        assert placed(with_turns, ("system", "one")) == [("system", "one"), begun]
        assert placed(only_first, ("system", "one")) == [("system", "one")]

    def test_developers_stay_if_the_template_names_and_shows_them(self) -> None:
        said: list[Said] = [("developer", "one"), USER]
        assert placed(anywhere, *said, names_developers=True) == said
        assert placed(anywhere, *said) == [("system", "one"), USER]
        assert placed(only_first, *said, names_developers=True) == [("system", "one"), USER]

    def test_two_developers_are_merged_into_one(self) -> None:
        said: list[Said] = [("developer", "one"), ("developer", "two"), USER]

        def one_of_any(messages: Sequence[ChatMessage]) -> bool:
            return not {"s", "d"} & set(letters(messages)[1:])

        assert placed(one_of_any, *said, names_developers=True) == [
            ("developer", "one\n\ntwo"),
            USER,
        ]


class TestLater:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ([USER, ("system", "now")], [("user", f"u\n\n{marked('now')}")]),
            (
                [USER, ("system", "now"), ("developer", "then"), ANSWER, AGAIN],
                [("user", f"u\n\n{marked('now', 'then')}"), ANSWER, AGAIN],
            ),
            (
                [USER, ANSWER, ("system", "now"), AGAIN],
                [USER, ANSWER, ("user", f"{marked('now')}\n\nv")],
            ),
            (
                [USER, ANSWER, ("system", "now")],
                [USER, ANSWER, ("user", marked("now"))],
            ),
            (
                [("system", "s"), USER, ("system", "now")],
                [("system", "s"), ("user", f"u\n\n{marked('now')}")],
            ),
        ],
    )
    def test_it_goes_into_a_users_turn_beside_it(
        self, said: list[Said], expected: list[Said]
    ) -> None:
        assert placed(only_first, *said) == expected

    def test_it_stays_where_it_is_shown(self) -> None:
        said: list[Said] = [USER, ("system", "now"), ANSWER, ("system", "then"), AGAIN]
        assert placed(anywhere, *said) == said

    def test_after_a_result_it_becomes_a_users_turn_or_ends_the_result(self) -> None:
        said: list[Said] = [USER, ANSWER, RESULT, ("system", "now")]
        assert placed(only_first, *said) == [USER, ANSWER, RESULT, ("user", marked("now"))]
        assert placed(first_and_alternating, *said) == [
            USER,
            ANSWER,
            ("tool", f"t\n\n{marked('now')}"),
        ]

    def test_one_beside_an_earlier_one_that_would_be_lost(self) -> None:
        alone: list[Said] = [USER, ("system", "now")]
        assert placed(last_wins, *alone) == alone
        said: list[Said] = [USER, ("system", "now"), ANSWER, AGAIN, ("system", "then")]
        assert placed(last_wins, *said) == [*said[:3], ("user", f"v\n\n{marked('then')}")]

    def test_the_parts_of_a_users_turn_are_kept(self) -> None:
        parts = (TextPart(type="text", text="one "), TextPart(type="text", text="two"))
        habits = instructions_shown(only_first, names_developers=False)
        [message] = habits.placed(
            [ChatMessage(role="user", content=parts), ChatMessage(role="system", content="now")]
        )
        assert message.text == f"one \ntwo\n\n{marked('now')}"


def test_a_template_that_wants_something_unknown_gets_messages_as_they_are() -> None:
    said: list[Said] = [("system", "one"), ("system", "two"), USER, ("system", "three")]
    assert placed(lambda _messages: False, *said) == said
    assert instructions_shown(anywhere, names_developers=True) == Instructions()


@pytest.mark.parametrize("shows", [only_first, never, anywhere, first_and_alternating, last_wins])
def test_nothing_is_lost_and_the_next_request_begins_alike(shows: Shows) -> None:
    rng = random.Random(3)
    for _ in range(300):
        roles = [LETTERS[each] for each in "u" + "".join(rng.choices("sduat", k=8))]
        said = [(role, f"{role}-{place}.") for place, role in enumerate(roles)]
        result = placed(shows, *said)  # type: ignore[arg-type]
        text = "\n".join(text for _, text in result)
        assert all(text.count(word) == 1 for _, word in said)
        if said[-1][0] in ("user", "tool"):
            longer = placed(shows, *said, ("assistant", "a"), ("user", "v"))  # type: ignore[arg-type]
            assert longer[: len(result)] == result


def test_instructions_as_turns_of_users() -> None:
    system, user = (ChatMessage(role=role, content=role) for role in ("system", "user"))
    turned = ChatMessage(role="user", content=marked("system"))
    assert as_users([system, user, system, user]) == [system, user, turned, user]
