"""The sampling options of one sequence."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....shared.sampling import (
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_P,
    SAMPLER_ORDER,
    SamplerName,
)

_IN_POOL: frozenset[SamplerName] = frozenset(
    {"top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc"}
)
"""The filters that `filters.Pool` has; any other is one of `ordered`."""

Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
"""Sequence breakers, beyond which a repetition may not reach.

They map the first token to the continuations that complete a breaker.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dry:
    """A penalty on tokens that would continue a repetition of the last `penalty_last_n` tokens.

    The penalty begins with repetitions of `allowed_length` tokens, at `multiplier` logits, and
    grows by the factor `base` with each further token.
    https://github.com/oobabooga/text-generation-webui/pull/5677
    """

    multiplier: float
    base: float = 1.75
    allowed_length: int = 2
    penalty_last_n: int = 64
    breakers: Breakers = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The sampling options of one request; the defaults are llama.cpp's.

    `seed` is below 2**32. `logit_bias` has (token id, bias in logits) pairs. `ignore_eos` prevents
    end-of-generation tokens. The first `min_tokens` tokens are neither end-of-generation tokens
    nor `stop_tokens`, unless a grammar allows no other token. A `top_k` of 0, `top_p` of 1,
    `min_p` of 0, `typical_p` of 1, `top_n_sigma` of 0, `xtc_probability` of 0, `dynatemp_range` of
    0 and an `adaptive_target` below 0 turn that sampler off. Penalties look at the last
    `repeat_last_n` tokens, including the prompt's, as in llama-server. A `mirostat` of 1 or 2
    replaces all filters and penalties.

    `samplers` are the active samplers in their order, if that order differs from llama.cpp's and
    may change the result.

    If `allowed_tokens` are given, only these tokens are chosen. A token that would complete one of
    the `bad_words` in the answer, each a sequence of tokens, is never chosen.

    Each token is reported with its log-probability and the log-probabilities of the
    `top_log_probs` likeliest tokens; `None` reports nothing.
    """

    seed: int
    temperature: float = DEFAULT_TEMPERATURE
    top_k: int = 40
    top_p: float = DEFAULT_TOP_P
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    dry: Dry | None = None
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: tuple[SamplerName, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    stop_tokens: tuple[int, ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    top_log_probs: int | None = None

    @property
    def has_penalties(self) -> bool:
        """Return whether earlier tokens change the logits."""
        return self.repeat_last_n > 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def has_xtc(self) -> bool:
        """Return whether XTC may drop the likeliest tokens."""
        return self.xtc_probability > 0 and self.xtc_threshold <= 0.5

    @property
    def has_dynamic_temperature(self) -> bool:
        """Return whether the temperature depends on the model's uncertainty."""
        return self.dynatemp_range > 0 and self.temperature > 0 and self.mirostat == 0

    @property
    def has_adaptive(self) -> bool:
        """Return whether tokens near a target probability are preferred."""
        return self.adaptive_target >= 0 and self.temperature > 0 and self.mirostat == 0

    @property
    def order(self) -> tuple[SamplerName, ...]:
        """The samplers that `ordered` applies one after another; empty if `Pool` has them all.

        In llama.cpp's own order the histories come first, and are not listed here.
        """
        if self.samplers:
            return self.samplers
        is_plain = not (self.has_dynamic_temperature or self.has_adaptive)
        if is_plain and _IN_POOL.issuperset(self.filters):
            return ()
        return tuple(sorted((*self.filters, "temperature"), key=SAMPLER_ORDER.index))

    @property
    def filters(self) -> tuple[SamplerName, ...]:
        """The filters that may drop tokens, in llama.cpp's order."""
        is_on: dict[SamplerName, bool] = {
            "top_n_sigma": self.top_n_sigma > 0,
            "top_k": self.top_k > 0,
            "typ_p": self.typical_p < 1,
            "top_p": self.top_p < 1,
            "min_p": self.min_p > 0,
            "xtc": self.has_xtc,
        }
        return tuple(name for name in SAMPLER_ORDER if is_on.get(name))

    @property
    def may_pass_over_the_best(self) -> bool:
        """Return whether a filter may drop the token with the highest logit."""
        return self.mirostat == 0 and (self.typical_p < 1 or self.has_xtc)

    @property
    def can_resume(self) -> bool:
        """Return whether a sampler can continue exactly after tokens that another sampler chose.

        Three samplers depend on earlier rows of logits, which are no longer available, so they
        start again. Mirostat draws only if there is a choice, and its `mu` follows the tokens'
        surprise. `adaptive_p` follows a mean of probabilities. XTC draws, from a generator of its
        own, only if at least two candidates remain. A rare row without finite logits also takes no
        draw.
        """
        if self.has_adaptive:
            return False
        has_mirostat = self.mirostat > 0 and self.temperature > 0
        return not has_mirostat and not (self.mirostat == 0 and self.has_xtc)

    def num_draws(self, num_tokens: int) -> int:
        """Return the random draws that `num_tokens` took; with mirostat, the maximum.

        One token takes one draw in double precision, whatever the filters keep; a greedy choice
        takes none.
        """
        return num_tokens if self.temperature > 0 else 0

    @property
    def is_greedy(self) -> bool:
        """Return whether the answer always has the token with the highest logit after biases."""
        return (
            self.temperature <= 0
            and not self.has_penalties
            and self.dry is None
            and not self.bad_words
            and not self.may_pass_over_the_best
        )
