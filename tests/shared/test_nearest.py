import pytest

from arriero.shared.nearest import meant

FLAGS = ["--numa", "--threads", "--help"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--threds", "did you mean --threads?"),
        ("--jinja", "see --help"),  # dashes alone make nothing alike
        ("numo", "did you mean --numa?"),
    ],
)
def test_the_word_that_was_meant(word: str, said: str) -> None:
    assert meant(word, FLAGS) == said
