"""Converts a request's sampling fields, and the model's defaults, to the engine's `Sampling`."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from ...shared.errors import InvalidRequest
from ...shared.inference import GenerateRequest
from ...shared.sampling import SAMPLER_ORDER, SAMPLERS, SamplerName, SamplingChoices, chosen
from ..engine.loaded_model import Vocab
from ..engine.sampling.dry import BreakerFinder
from ..engine.sampling.sampling import Dry, Sampling

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
"""llama.cpp's default sequence breakers of DRY."""

_MADE_ANEW = {"logit_bias", "bad_words", "samplers"}
_AS_THEY_ARE = SAMPLERS.keys() & {each.name for each in fields(Sampling)} - _MADE_ANEW
_OF_DRY = {name.removeprefix("dry_"): name for name in SAMPLERS if name.startswith("dry_")}
"""Fields of a request that have the same name in the engine's options, or in DRY's options."""


class SamplingResolver:
    """Converts sampling fields of requests to one model."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._breakers = BreakerFinder(vocab)

    def sampling(self, request: GenerateRequest, seed: int) -> Sampling:
        """Return the engine's options. `seed` applies if the request has no seed.

        Raises an `InvalidRequest` that names the field.
        """
        request = _without_unnamed(request)
        return Sampling(
            **_given({name: name for name in _AS_THEY_ARE}, request),
            samplers=_order(request),
            seed=seed if request.seed is None else request.seed,
            dry=self._dry(request),
            logit_bias=self._logit_bias(request),
            stop_tokens=self._known("stop_token_ids", request.stop_token_ids),
            allowed_tokens=self._allowed(request),
            bad_words=tuple(self._bad_words(request)),
            top_log_probs=(request.top_logprobs or 0) if request.logprobs else None,
        )

    def _dry(self, request: GenerateRequest) -> Dry | None:
        if not request.dry_multiplier:
            return None
        asked = _given(_OF_DRY, request)
        breakers = asked.pop("sequence_breakers", DEFAULT_BREAKERS)
        return Dry(**asked, breakers=self._breakers.find(breakers))

    def _logit_bias(self, request: GenerateRequest) -> tuple[tuple[int, float], ...]:
        biases = tuple((int(token), bias) for token, bias in (request.logit_bias or {}).items())
        self._known("logit_bias", tuple(token for token, _ in biases))
        return biases

    def _allowed(self, request: GenerateRequest) -> tuple[int, ...] | None:
        allowed = request.allowed_token_ids
        return None if allowed is None else self._known("allowed_token_ids", allowed)

    def _bad_words(self, request: GenerateRequest) -> Iterator[tuple[int, ...]]:
        """Yield the tokens of each text, at the beginning of a word and within a word."""
        for place, text in enumerate(request.bad_words):
            within, at_beginning = (
                self._vocab.tokenize(each, add_special=False, parse_special=False)
                for each in (text, f" {text.lstrip()}")
            )
            if not within:
                field = f"bad_words[{place}]"
                raise InvalidRequest(f"`{field}`: it has no tokens", field=field)
            yield within
            # A space of its own says nothing of the word.
            if len(at_beginning) == len(within) and at_beginning[0] != within[0]:
                yield at_beginning

    def _known(self, field: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return `tokens` if all are in the vocabulary. Raises `InvalidRequest`."""
        for token in tokens:
            if token >= self._vocab.size:
                raise InvalidRequest(
                    f"`{field}`: there is no token {token}; this model's ids go up to "
                    f"{self._vocab.size - 1}",
                    field=field,
                )
        return tokens


def _given(names: Mapping[str, str], request: GenerateRequest) -> dict[str, Any]:
    """Return the values that the request sets, by the engine's names.

    `names` maps the engine's names to fields of the request.
    """
    asked = {name: getattr(request, field) for name, field in names.items()}
    return {name: value for name, value in asked.items() if value is not None}


_FIELDS: Mapping[SamplerName, Mapping[str, float]] = {
    name: {
        field: each.off
        for field, each in SAMPLERS.items()
        if each.turns_off == name and each.off is not None
    }
    for name in SAMPLER_ORDER
}
"""The fields that turn each sampler off, with the value that does. It is on if one is not off."""


_DEFAULTS = Sampling(seed=0)


def _without_unnamed(request: GenerateRequest) -> GenerateRequest:
    """Return `request` with all samplers turned off that its `samplers` omit, if it has any."""
    unnamed = _FIELDS.keys() - request.samplers if request.samplers else ()
    off: dict[str, Any] = {}
    for name in unnamed:
        off |= _FIELDS[name]
    return replace(request, **off) if off else request


def _order(request: GenerateRequest) -> tuple[SamplerName, ...]:
    """Return the active samplers in the request's order; empty if it is llama.cpp's order.

    `adaptive_p` always comes last, wherever the request names it.
    """
    names = [name for name in dict.fromkeys(request.samplers) if name != "adaptive_p"]
    on = [name for name in names if _is_on(name, request)]
    return () if on == sorted(on, key=SAMPLER_ORDER.index) else tuple(on)


def _is_on(name: SamplerName, request: GenerateRequest) -> bool:
    return any(_value(field, request, off) != off for field, off in _FIELDS[name].items())


def _value(field: str, request: GenerateRequest, default: float) -> Any:
    """Return what the engine uses for a field; `default` if it is a field of no `Sampling`."""
    given = getattr(request, field)
    return getattr(_DEFAULTS, field, default) if given is None else given


class SamplingDefaults:
    """A model's defaults for fields that a request leaves open.

    A field is open if its value is the field's default.
    """

    def __init__(self, defaults: SamplingChoices) -> None:
        self._given = chosen(defaults)

    def applied(self, request: GenerateRequest) -> GenerateRequest:
        """Return `request` with values for its open fields."""
        said = chosen(request)
        filled = {name: value for name, value in self._given.items() if name not in said}
        return replace(request, **filled) if filled else request
