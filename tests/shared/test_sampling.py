from dataclasses import fields
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.sampling import (
    SAMPLER_ORDER,
    SAMPLERS,
    SamplerAbility,
    SamplingChoices,
    chosen,
    sampling_fields,
)

adapter = TypeAdapter(SamplingChoices)
FIELDS = [field.name for field in fields(SamplingChoices)]

EVERYWHERE = {"temperature", "top_p", "stop"}
"""The fields that need no ability: they are OpenAI's, and every server obeys them."""


def test_each_field_says_what_there_is_to_know_of_it() -> None:
    silent = [name for name in FIELDS if name not in SAMPLERS]
    assert not silent, f"annotate with a `Sampler`: {', '.join(silent)}"


def test_each_field_needs_an_ability_but_for_those_that_all_servers_know() -> None:
    free = [name for name, sampler in SAMPLERS.items() if sampler.ability is None]
    assert {*free} == EVERYWHERE, f"give them an ability, or exempt them here: {', '.join(free)}"
    assert all(SAMPLERS[name].is_standard for name in EVERYWHERE)


def test_each_ability_is_for_some_field() -> None:
    assert {each.ability for each in SAMPLERS.values()} - {None} == {*get_args(SamplerAbility)}


@pytest.mark.parametrize("name", [name for name, each in SAMPLERS.items() if each.off is not None])
def test_what_turns_a_sampler_off_is_a_value_of_it(name: str) -> None:
    adapter.validate_json(_json({name: SAMPLERS[name].off}))


def test_each_sampler_can_be_turned_off() -> None:
    turning = [each for each in SAMPLERS.values() if each.turns_off is not None]
    assert {each.turns_off for each in turning} == {*SAMPLER_ORDER}
    assert all(each.off is not None for each in turning)


def test_what_is_chosen_is_what_is_not_left_open() -> None:
    assert chosen(SamplingChoices()) == {}
    said = SamplingChoices(top_k=0, temperature=0.5, min_tokens=0, stop=("a",), ignore_eos=True)
    assert chosen(said) == {"top_k": 0, "temperature": 0.5, "stop": ("a",), "ignore_eos": True}


def test_what_is_left_out_is_left_to_its_default() -> None:
    values = sampling_fields(SamplingChoices())
    assert (values.pop("stop"), values.pop("stop_token_ids")) == ((), ())
    assert (values.pop("bad_words"), values.pop("samplers")) == ((), ())
    assert (values.pop("ignore_eos"), values.pop("include_stop_str_in_output")) == (False, False)
    assert values.pop("min_tokens") == 0
    assert set(values.values()) == {None}


def test_the_fields_are_those_of_the_choices_alone() -> None:
    class More(SamplingChoices):
        pass

    assert sampling_fields(More(top_k=3)) == sampling_fields(SamplingChoices(top_k=3))


RANGES: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("temperature", (0, 10), (-0.1, 10.1, "1")),
    ("top_k", (0, 1), (-1, 1.5, 2**31)),
    ("top_p", (0, 1), (-0.1, 1.1)),
    ("min_p", (0, 1), (-0.1, 1.1)),
    ("typical_p", (0.1, 1), (0, 1.1)),
    ("top_n_sigma", (-1, 0, 2.5), (-2, 101)),
    ("xtc_probability", (0, 1), (-0.1, 1.1)),
    ("xtc_threshold", (0, 1), (-0.1, 1.1)),
    ("dynatemp_range", (0, 10), (-0.1, 10.1)),
    ("dynatemp_exponent", (0, 100), (-0.1, 101)),
    ("adaptive_target", (-1, 0, 1), (-1.1, 1.1)),
    ("adaptive_decay", (0, 0.99), (-0.1, 1)),
    ("repeat_penalty", (0.1, 10), (0, 11)),
    ("repeat_last_n", (0, 64), (-1,)),
    ("presence_penalty", (-2, 2), (-2.1, 2.1)),
    ("frequency_penalty", (-2, 2), (-2.1, 2.1)),
    ("ignore_eos", (True, False), (0, None)),
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
    ("allowed_token_ids", ([0], [7, 3]), ([], [-1], ["1"], [1] * 65_537)),
    ("samplers", ([], ["top_p", "top_k"]), (["infill"], ["top_k"] * 11, "top_k")),
    ("bad_words", ([], ["a"]), ([""], ["x"] * 257, "x", ["x" * 257])),
    ("stop", ([], ["a"], ["x"] * 64), (["x"] * 65, [1], "a", [""])),
]


def test_each_field_has_its_range_tried() -> None:
    assert {name for name, _, _ in RANGES} == {*FIELDS}


@pytest.mark.parametrize(("name", "good", "bad"), RANGES)
def test_ranges(name: str, good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        adapter.validate_json(_json({name: value}))
    for value in bad:
        with pytest.raises(ValidationError) as caught:
            adapter.validate_json(_json({name: value}))
        assert caught.value.errors()[0]["loc"][0] == name


def _json(value: Any) -> bytes:
    return TypeAdapter(Any).dump_json(value)
