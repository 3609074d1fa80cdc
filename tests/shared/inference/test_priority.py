import pytest

from arriero.shared.inference import PRIORITY_CLASSES, PRIORITY_NUMBERS, priority_class_of


@pytest.mark.parametrize(
    ("number", "kind"),
    [(100, "interactive"), (1, "interactive"), (0, "default"), (-1, "batch"), (-100, "batch")],
)
def test_the_sign_of_a_priority_says_its_class(number: int, kind: str) -> None:
    assert priority_class_of(number) == kind


def test_every_class_has_a_word_that_means_it() -> None:
    assert tuple(PRIORITY_NUMBERS) == PRIORITY_CLASSES
    assert [priority_class_of(PRIORITY_NUMBERS[each]) for each in PRIORITY_CLASSES] == list(
        PRIORITY_CLASSES
    )
