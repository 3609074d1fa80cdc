"""How far a sampler's random source was used by tokens that another engine chose.

One token takes one draw in double precision, whatever the filters leave of the row; none where the
highest logit is taken. Two choices depend on the rows themselves, which are not there any more:
- mirostat draws only where there is a choice, and its `mu` follows the tokens' surprise;
- XTC draws, from a generator of its own, only where at least two candidates are left.

They start anew. So does, rarely, a row of which nothing finite was left: it took no draw.
"""

from .sampling import Sampling


def num_draws(sampling: Sampling, num_tokens: int) -> int:
    """Draws that `num_tokens` took; with mirostat, at most."""
    return num_tokens if sampling.temperature > 0 else 0


def can_resume(sampling: Sampling) -> bool:
    """Whether the next tokens will be those that the first sampler would have chosen."""
    has_mirostat = sampling.mirostat > 0 and sampling.temperature > 0
    return not has_mirostat and not (sampling.mirostat == 0 and sampling.has_xtc)
