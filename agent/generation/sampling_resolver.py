"""From a request's sampling fields, and the model's defaults, to the engine's `Sampling`."""

from dataclasses import fields, replace
from typing import Any

from ...shared.errors import InvalidRequest
from ...shared.inference import GenerateRequest
from ...shared.sampling import SamplingChoices
from ..engine.loaded_model import Vocab
from ..engine.sampling.breakers import BreakerFinder
from ..engine.sampling.sampling import Dry, Sampling

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
"""llama.cpp's."""

_AS_THEY_ARE = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma"),
    *("xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau", "mirostat_eta"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
)

_OPEN = SamplingChoices()
"""A request that says nothing of sampling."""


class SamplingResolver:
    """For requests to one model."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._breakers = BreakerFinder(vocab)

    def sampling(self, request: GenerateRequest, seed: int) -> Sampling:
        """`seed` is for a request without one. Raises `InvalidRequest` that names the field."""
        asked = {name: getattr(request, name) for name in _AS_THEY_ARE}
        asked["penalty_last_n"] = request.repeat_last_n
        return Sampling(
            **{name: value for name, value in asked.items() if value is not None},
            seed=seed if request.seed is None else request.seed,
            dry=self._dry(request),
            logit_bias=self._logit_bias(request),
            ignore_eos=request.ignore_eos,
            min_tokens=request.min_tokens,
            stop_tokens=self._known("stop_token_ids", request.stop_token_ids),
            top_log_probs=(request.top_logprobs or 0) if request.logprobs else None,
        )

    def _dry(self, request: GenerateRequest) -> Dry | None:
        if not request.dry_multiplier:
            return None
        asked: dict[str, Any] = {
            "base": request.dry_base,
            "allowed_length": request.dry_allowed_length,
            "penalty_last_n": request.dry_penalty_last_n,
        }
        breakers = request.dry_sequence_breakers
        return Dry(
            **{name: value for name, value in asked.items() if value is not None},
            multiplier=request.dry_multiplier,
            breakers=self._breakers.find(DEFAULT_BREAKERS if breakers is None else breakers),
        )

    def _logit_bias(self, request: GenerateRequest) -> tuple[tuple[int, float], ...]:
        biases = tuple((int(token), bias) for token, bias in (request.logit_bias or {}).items())
        self._known("logit_bias", tuple(token for token, _ in biases))
        return biases

    def _known(self, field: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """`tokens`, if all are the model's. Raises `InvalidRequest`."""
        for token in tokens:
            if token >= self._vocab.size:
                raise InvalidRequest(
                    f"`{field}`: there is no token {token}; this model's ids go up to "
                    f"{self._vocab.size - 1}",
                    field=field,
                )
        return tokens


class SamplingDefaults:
    """A model's defaults for what a request leaves open.

    A field is open where a request has the value that it has without being named.
    """

    def __init__(self, defaults: SamplingChoices) -> None:
        names = (field.name for field in fields(SamplingChoices))
        values = {name: getattr(defaults, name) for name in names}
        self._given = {n: value for n, value in values.items() if value != getattr(_OPEN, n)}

    def applied(self, request: GenerateRequest) -> GenerateRequest:
        """`request` with a value for what it leaves open."""
        filled = {
            name: value
            for name, value in self._given.items()
            if getattr(request, name) == getattr(_OPEN, name)
        }
        return replace(request, **filled) if filled else request
