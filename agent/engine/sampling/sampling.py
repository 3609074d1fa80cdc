"""How the next token of one sequence is chosen from the model's logits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....shared.sampling import DEFAULT_TEMPERATURE, DEFAULT_TOP_P, SAMPLER_ORDER

Breakers = Mapping[int, tuple[tuple[int, ...], ...]]
"""Where a repetition may not reach beyond: by first token, what may follow it to complete one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dry:
    """A penalty on tokens that would go on repeating a run of the last `penalty_last_n`.

    It begins with runs of `allowed_length` tokens, at `multiplier` logits, and grows by `base` with
    each further token. https://github.com/oobabooga/text-generation-webui/pull/5677
    """

    multiplier: float
    base: float = 1.75
    allowed_length: int = 2
    penalty_last_n: int = 64
    breakers: Breakers = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Choices of one request; the defaults are llama.cpp's.

    `seed` is below 2**32. `logit_bias` holds (token id, bias in logits) pairs. `ignore_eos` keeps
    end-of-generation tokens from ever being chosen. The first `min_tokens` tokens are none of them
    and none of `stop_tokens`, unless a grammar leaves no other. A `top_k` of 0, `top_p` of 1,
    `min_p` of 0, `typical_p` of 1, `top_n_sigma` of 0 and `xtc_probability` of 0 leave that filter
    out. So do a `dynatemp_range` of 0 and an `adaptive_target` below 0.
    Penalties look at the last `repeat_last_n` tokens, the prompt's included, as llama-server's
    do. A `mirostat` of 1 or 2 takes the place of all filters and penalties.

    `samplers` are those that are on, in the order in which they apply, if that is another than
    llama.cpp's and may change the result.

    Only `allowed_tokens` are ever chosen, where they are given, and none that would complete one of
    the `bad_words` in the answer, each of which is a run of tokens.

    `top_log_probs` of the likeliest tokens are reported with each token, and the token's own
    log-probability; `None` reports nothing.
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
    samplers: tuple[str, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    stop_tokens: tuple[int, ...] = ()
    allowed_tokens: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    top_log_probs: int | None = None

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the logits."""
        return self.repeat_last_n > 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def has_xtc(self) -> bool:
        """Whether the likeliest tokens may be left out, where others are likely, too."""
        return self.xtc_probability > 0 and self.xtc_threshold <= 0.5

    @property
    def has_dynamic_temperature(self) -> bool:
        """Whether the temperature follows the model's uncertainty."""
        return self.dynatemp_range > 0 and self.temperature > 0 and self.mirostat == 0

    @property
    def has_adaptive(self) -> bool:
        """Whether tokens near a target probability are chosen."""
        return self.adaptive_target >= 0 and self.temperature > 0 and self.mirostat == 0

    @property
    def order(self) -> tuple[str, ...]:
        """The samplers that apply one after another; empty if `filters` has them all.

        In llama.cpp's own order the histories come first, and are none of these.
        """
        if self.samplers or not (self.has_dynamic_temperature or self.has_adaptive):
            return self.samplers
        is_on = {
            "top_n_sigma": self.top_n_sigma > 0,
            "top_k": self.top_k > 0,
            "typ_p": self.typical_p < 1,
            "top_p": self.top_p < 1,
            "min_p": self.min_p > 0,
            "xtc": self.has_xtc,
            "temperature": True,
        }
        return tuple(name for name in SAMPLER_ORDER if is_on.get(name))

    @property
    def may_pass_over_the_best(self) -> bool:
        """Whether a filter may leave out the highest logit."""
        return self.mirostat == 0 and (self.typical_p < 1 or self.has_xtc)

    @property
    def can_resume(self) -> bool:
        """Whether a sampler chooses as another would have that chose the tokens before.

        Three choices depend on rows of logits, which are not there any more, and start anew:
        mirostat draws only where there is a choice, and its `mu` follows the tokens' surprise; so
        do `adaptive_p` and its mean of probabilities; XTC draws, from a generator of its own, only
        where at least two candidates are left. Rarely, so does a row of which nothing finite was
        left: it took no draw.
        """
        if self.has_adaptive:
            return False
        has_mirostat = self.mirostat > 0 and self.temperature > 0
        return not has_mirostat and not (self.mirostat == 0 and self.has_xtc)

    def num_draws(self, num_tokens: int) -> int:
        """Draws from the random source that `num_tokens` took; with mirostat, at most.

        One token takes one draw in double precision, whatever the filters leave of the row; none
        where the highest logit is taken.
        """
        return num_tokens if self.temperature > 0 else 0

    @property
    def is_greedy(self) -> bool:
        """Whether the answer is the highest logit, after biases: no chance and no history in it."""
        return (
            self.temperature <= 0
            and not self.has_penalties
            and self.dry is None
            and not self.bad_words
            and not self.may_pass_over_the_best
        )
