"""What patterns cost, estimated before anything is done with them."""

import pytest

from arriero.agent.chat.parsing.pattern import MOST_COST, Pattern, cost_of


@pytest.mark.parametrize(
    ("pattern", "num_atoms"),
    [
        ("abc", 3),
        ("a{10}", 10),
        ("a{2,10}b", 11),
        ("a{2,}", 2),
        ("(ab){10}", 20),
        ("((a{10}b){10}){10}", 1100),
        (r"\d{4}-\d{2}", 7),
        (r"\({3}", 3),
        ("[{}()]{3}", 3),
        ("[]x]{3}", 3),
        (")a{3}", 3),
        ("((a{3}", 3),
        ("", 0),
    ],
)
def test_repeats_are_written_out(pattern: str, num_atoms: int) -> None:
    assert cost_of(pattern).num_atoms == num_atoms


def test_large_classes_cost_more() -> None:
    narrow, wide = cost_of("[a-z]{10}"), cost_of(r"\w{10}")
    assert wide.num_atoms == narrow.num_atoms
    assert wide.to_compile > 10 * narrow.to_compile
    assert cost_of(r"[\w-]{10}").to_compile >= wide.to_compile


def test_costs_do_not_grow_without_bound() -> None:
    pattern = "a"
    for _ in range(2000):
        pattern = f"({pattern}){{999999999}}"
    assert cost_of(pattern).num_atoms == MOST_COST


def test_the_longer_the_text_the_more() -> None:
    cost = cost_of("(a?){100}")
    assert cost.to_match("a" * 1000) == 10 * cost.to_match("a" * 100) > 0


@pytest.mark.parametrize(
    ("pattern", "text", "does_match"),
    [("b", "abc", True), ("^b", "abc", False), ("(?=b)", "", True), ("(", "x", True)],
)
def test_what_matches(pattern: str, text: str, does_match: bool) -> None:
    assert Pattern(pattern).matches(text) == does_match


def test_a_class_that_is_never_closed_is_read_once() -> None:
    assert cost_of("[" * 200_000).num_atoms == 1
