"""OpenAI's words for what an answer has to be; how bodies hold them is tested with the bodies."""

import pytest

from arriero.balancer.api.openai.completions.formats import (
    Choice,
    FunctionChoice,
    JsonObjectFormat,
    TextFormat,
    neutral_choice,
)
from arriero.shared.inference import JsonSchemaGrammar


def test_text_is_anything() -> None:
    assert TextFormat(type="text").grammar() is None  # type: ignore[func-returns-value]


def test_an_object_of_any_kind() -> None:
    assert JsonObjectFormat(type="json_object").grammar() == JsonSchemaGrammar(
        type="json_schema", schema={"type": "object"}
    )


@pytest.mark.parametrize("choice", [None, "auto", "none", "required"])
def test_words_are_the_same(choice: Choice | None) -> None:
    assert not isinstance(choice, FunctionChoice)
    assert neutral_choice(choice) == choice
