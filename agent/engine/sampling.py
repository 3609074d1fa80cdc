"""How the next token of one sequence is chosen from the model's logits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Choices of one request; the defaults are llama.cpp's.

    `seed` is below 2**32. `logit_bias` holds (token id, bias in logits) pairs. `ignore_eos` keeps
    end-of-generation tokens from ever being chosen. A `top_k` of 0, `top_p` of 1 and `min_p` of 0
    leave that filter out. Penalties look at the last `penalty_last_n` tokens, the prompt's
    included, as llama-server's do.
    """

    seed: int
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the logits."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def is_greedy(self) -> bool:
        """Whether the answer is the highest logit, after biases: no chance and no history in it."""
        return self.temperature <= 0 and not self.has_penalties
