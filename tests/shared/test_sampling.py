from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.sampling import SamplingChoices, sampling_fields

adapter = TypeAdapter(SamplingChoices)


def test_what_is_left_out_is_left_to_its_default() -> None:
    values = sampling_fields(SamplingChoices())
    assert (values.pop("stop"), values.pop("stop_token_ids")) == ((), ())
    assert (values.pop("ignore_eos"), values.pop("include_stop_str_in_output")) == (False, False)
    assert values.pop("min_tokens") == 0
    assert set(values.values()) == {None}


def test_the_fields_are_those_of_the_choices_alone() -> None:
    class More(SamplingChoices):
        pass

    assert sampling_fields(More(top_k=3)) == sampling_fields(SamplingChoices(top_k=3))


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", (0, 10), (-0.1, 10.1, "1")),
        ("top_k", (0, 1), (-1, 1.5, 2**31)),
        ("top_p", (0.1, 1), (0, 1.1)),
        ("min_p", (0, 1), (-0.1, 1.1)),
        ("typical_p", (0.1, 1), (0, 1.1)),
        ("top_n_sigma", (-1, 0, 2.5), (-2, 101)),
        ("xtc_probability", (0, 1), (-0.1, 1.1)),
        ("xtc_threshold", (0, 1), (-0.1, 1.1)),
        ("repeat_penalty", (0.1, 10), (0, 11)),
        ("repeat_last_n", (0, 64), (-1,)),
        ("presence_penalty", (-2, 2), (-2.1, 2.1)),
        ("min_tokens", (0, 64), (-1, 1.5, None)),
        ("stop_token_ids", ([], [0, 7], [1] * 1024), ([-1], ["1"], [1] * 1025)),
        ("include_stop_str_in_output", (True, False), (0,)),
        ("dry_multiplier", (0, 0.8), (-1, 101)),
        ("dry_base", (1, 1.75), (0.9, 101)),
        ("dry_allowed_length", (0, 2), (-1,)),
        ("dry_penalty_last_n", (0, 64), (-1,)),
        ("dry_sequence_breakers", ([], ["\n"]), ([""], ["x" * 41], ["x"] * 17, "x")),
        ("mirostat", (0, 1, 2), (3, -1, True)),
        ("mirostat_tau", (0, 5), (-1, 101)),
        ("mirostat_eta", (0, 0.1), (-1, 11)),
        ("logit_bias", ({}, {"7": -100}), ({"x": 1}, {"7": 101})),
        ("stop", ([], ["a"]), ([""], ["x"] * 17, "x")),
    ],
)
def test_ranges(name: str, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        adapter.validate_json(_json({name: value}))
    for value in bad:
        with pytest.raises(ValidationError) as caught:
            adapter.validate_json(_json({name: value}))
        assert caught.value.errors()[0]["loc"][0] == name


def _json(value: Any) -> bytes:
    return TypeAdapter(Any).dump_json(value)
