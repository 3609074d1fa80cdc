from typing import Any

import pytest

from arriero.agent.engine.sampling.sampling import Dry, Sampling
from arriero.agent.generation.sampling_resolver import SamplingDefaults, SamplingResolver
from arriero.shared.errors import InvalidRequest
from arriero.shared.inference import GenerateRequest
from arriero.shared.sampling import SAMPLERS, SamplingChoices
from tests.agent.fakes import ByteVocab
from tests.sampling_values import VALUES


def sampling(**fields: Any) -> Sampling:
    return SamplingResolver(ByteVocab()).sampling(GenerateRequest(prompt="x", **fields), 99)


def test_what_is_not_said_is_left_to_its_default() -> None:
    assert sampling() == Sampling(seed=99)
    assert sampling(seed=0) == Sampling(seed=0)


def test_everything_that_is_said() -> None:
    fields: dict[str, Any] = {
        "temperature": 0.0,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 0.1,
        "typical_p": 0.9,
        "top_n_sigma": 1.5,
        "xtc_probability": 0.5,
        "xtc_threshold": 0.2,
        "dynatemp_range": 0.3,
        "dynatemp_exponent": 1.2,
        "adaptive_target": 0.5,
        "adaptive_decay": 0.8,
        "repeat_penalty": 1.1,
        "presence_penalty": -1.0,
        "frequency_penalty": 2.0,
        "mirostat": 2,
        "mirostat_tau": 4.0,
        "mirostat_eta": 0.2,
        "ignore_eos": True,
    }
    expected = Sampling(**fields, seed=99, repeat_last_n=7, logit_bias=((65, -100.0),))
    assert sampling(**fields, repeat_last_n=7, logit_bias={"65": -100.0}) == expected


IN_TEXT = {"stop", "include_stop_str_in_output"}
"""The fields that matter only where tokens have become text."""


@pytest.mark.parametrize("field", sorted(SAMPLERS.keys() - IN_TEXT))
def test_each_field_reaches_the_engine(field: str) -> None:
    others = {"dry_multiplier": 1.0} if field != "dry_multiplier" else {}
    before = sampling(**others)
    after = [sampling(**others, **{field: value}) for value in VALUES[field]]
    assert any(each != before for each in after), f"the engine does not learn of `{field}`"


def test_dry_breaks_at_lines_and_marks_unless_told_otherwise() -> None:
    breakers = dict.fromkeys(b'\n:"*', ((),))
    assert sampling(dry_multiplier=0.8).dry == Dry(multiplier=0.8, breakers=breakers)
    assert sampling(
        dry_multiplier=0.8,
        dry_base=2.0,
        dry_allowed_length=5,
        dry_penalty_last_n=9,
        dry_sequence_breakers=(),
    ).dry == Dry(multiplier=0.8, base=2.0, allowed_length=5, penalty_last_n=9)
    # A control token goes by its name.
    assert 257 in sampling(dry_multiplier=1.0, dry_sequence_breakers=("</s>",)).dry.breakers
    assert sampling(dry_multiplier=0.0, dry_base=2.0).dry is None


@pytest.mark.parametrize(
    ("fields", "num"),
    [
        ({}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 5}, 5),
    ],
)
def test_how_many_log_probabilities_are_reported(fields: Any, num: int | None) -> None:
    assert sampling(**fields).top_log_probs == num


def test_a_stop_token_that_is_not_there_is_refused() -> None:
    assert sampling(stop_token_ids=(0, 257), min_tokens=3) == Sampling(
        seed=99, min_tokens=3, stop_tokens=(0, 257)
    )
    with pytest.raises(InvalidRequest, match="`stop_token_ids`: there is no token 258") as caught:
        sampling(stop_token_ids=(1, 258))
    assert caught.value.field == "stop_token_ids"


def test_a_bias_on_a_token_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        sampling(logit_bias={"258": 1.0})
    assert caught.value.field == "logit_bias"
    assert "up to 257" in caught.value.message


DEFAULTS = SamplingDefaults(SamplingChoices(temperature=0.5, top_k=3, stop=("!",), ignore_eos=True))


def test_what_a_request_leaves_open() -> None:
    request = DEFAULTS.applied(GenerateRequest(prompt="x", min_p=0.25))
    assert request == GenerateRequest(
        prompt="x", min_p=0.25, temperature=0.5, top_k=3, stop=("!",), ignore_eos=True
    )


def test_what_a_request_says_comes_first() -> None:
    request = GenerateRequest(prompt="x", temperature=0.0, top_k=0, stop=("?",), ignore_eos=True)
    assert DEFAULTS.applied(request) == request


def test_without_defaults_a_request_is_as_it_came() -> None:
    request = GenerateRequest(prompt="x")
    assert SamplingDefaults(SamplingChoices()).applied(request) is request


def test_only_tokens_that_there_are_can_be_allowed() -> None:
    assert sampling(allowed_token_ids=(0, 257)).allowed_tokens == (0, 257)
    with pytest.raises(InvalidRequest) as caught:
        sampling(allowed_token_ids=(258,))
    assert caught.value.field == "allowed_token_ids"


class SpacedVocab(ByteVocab):
    """Has one token for each word and its space, as most have."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        return tuple({"no": 1, " no": 2, "": 3}.get(text, 0) for _ in text[:1])


def test_bad_words_stand_at_the_beginning_of_a_word_and_within_one() -> None:
    request = GenerateRequest(prompt="x", bad_words=("no",))
    assert SamplingResolver(SpacedVocab()).sampling(request, 1).bad_words == ((1,), (2,))
    # A space that is a token of its own belongs to no word.
    assert sampling(bad_words=("no",)).bad_words == ((ord("n"), ord("o")),)


def test_a_bad_word_without_tokens_is_refused() -> None:
    class Silent(ByteVocab):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
            return ()

    with pytest.raises(InvalidRequest) as caught:
        SamplingResolver(Silent()).sampling(GenerateRequest(prompt="x", bad_words=("a", "b")), 1)
    assert caught.value.field == "bad_words[0]"


def test_samplers_that_are_not_named_are_off() -> None:
    given = {"dynatemp_range": 0.5, "adaptive_target": 0.25}
    with_both = sampling(**given)
    assert with_both.has_dynamic_temperature and with_both.has_adaptive
    assert with_both.order[-1] == "temperature"
    other = sampling(samplers=("min_p", "adaptive_p"), **given)
    assert (other.has_dynamic_temperature, other.has_adaptive, other.order) == (
        False,
        True,
        ("min_p", "temperature"),
    )
    other = sampling(samplers=("temperature", "min_p"), **given)
    assert (other.has_dynamic_temperature, other.has_adaptive) == (True, False)
    assert not sampling(temperature=0.0, **given).order, "the likeliest token, whatever is set"
