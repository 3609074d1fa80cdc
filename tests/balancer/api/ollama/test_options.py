"""Ollama's options as neutral fields."""

import pytest

from arriero.balancer.api.ollama.options import (
    ALL_TOKENS,
    CHAT_NAMES,
    GENERATE_NAMES,
    Options,
)
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import GenerateRequest

UNSET = GenerateRequest(prompt="x", **Options().neutral())


def neutral(**options: object) -> dict[str, object]:
    """The neutral fields that these options set."""
    told = Options(**options).neutral()  # type: ignore[arg-type]
    return {name: value for name, value in told.items() if value not in (None, ())}


def test_without_options_nothing_is_set() -> None:
    assert GenerateRequest(prompt="x") == UNSET
    assert neutral() == {}


def test_most_have_the_same_name() -> None:
    same = {
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.1,
        "typical_p": 0.9,
        "repeat_last_n": 8,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "mirostat": 2,
        "mirostat_tau": 4.0,
        "mirostat_eta": 0.2,
        "seed": 7,
        "stop": ("a", "b"),
    }
    assert neutral(**same) == same


@pytest.mark.parametrize(("num_predict", "most"), [(5, 5), (0, None), (-1, None), (-2, None)])
def test_an_answer_may_have_no_bound(num_predict: int, most: int | None) -> None:
    assert Options(num_predict=num_predict).neutral()["max_tokens"] == most


def test_numbers_below_the_least_turn_things_off() -> None:
    assert neutral(top_k=-1) == {"top_k": 0}
    assert neutral(repeat_last_n=-1) == {"repeat_last_n": ALL_TOKENS}
    assert neutral(repeat_last_n=0) == {"repeat_last_n": 0}
    assert neutral(seed=-1) == {}
    assert neutral(seed=0) == {"seed": 0}
    assert neutral(seed=2**32 + 3) == {"seed": 3}


@pytest.mark.parametrize(
    ("neutral_name", "own"),
    [
        ("max_tokens", "options.num_predict"),
        ("top_k", "options.top_k"),
        ("grammar.schema.properties", "format.properties"),
        ("grammar", "format"),
        ("messages[1].content", "messages[1].content"),
        ("messages[3].content[1].image_url.url", "messages[3].images[1]"),
    ],
)
def test_errors_name_ollamas_fields(neutral_name: str, own: str) -> None:
    error = InvalidRequest(f"`{neutral_name}` is wrong", field=neutral_name)
    assert CHAT_NAMES.renamed(error) == InvalidRequest(f"`{own}` is wrong", field=own)


def test_errors_name_the_pictures_of_a_prompt() -> None:
    for place in (0, 1):  # with and without a system's message before
        field = f"messages[{place}].content[2].image_url.url"
        error = GENERATE_NAMES.renamed(InvalidRequest(f"`{field}` is odd", field=field))
        assert error == InvalidRequest("`images[2]` is odd", field="images[2]")
