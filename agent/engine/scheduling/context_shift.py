"""Context shift: which tokens a sequence drops when it reaches the slot's ceiling.

The first tokens stay (a system prompt, or at least the attention sinks). The oldest tokens after
them are dropped, a number at a time. A prompt that is longer than the window loses its oldest part
before it is read, so nothing is computed only to be dropped.
"""

from dataclasses import dataclass

from ....shared.inference import Notice
from ..prompt import Prompt
from ..sequence import ContextShift


@dataclass(frozen=True, slots=True)
class Window:
    """At `ceiling` tokens, `num_discarded` go after the first `num_kept`."""

    ceiling: int
    num_kept: int
    num_discarded: int

    def fit(self, prompt: Prompt) -> Prompt:
        """`prompt` as it is computed: with a token of the ceiling left for the answer."""
        num_gone = self.num_gone(len(prompt))
        return prompt.without(self.num_kept, num_gone) if num_gone else prompt

    def num_gone(self, num_tokens: int) -> int:
        """How many of a prompt's tokens are discarded before it is computed."""
        excess = max(0, num_tokens - (self.ceiling - 1))
        return -(-excess // self.num_discarded) * self.num_discarded


def open_window(
    shift: ContextShift, ceiling: int, num_tokens: int
) -> tuple[Window, tuple[Notice, ...]]:
    """The window of a prompt of `num_tokens`, and what its client should know of it.

    `shift` is clamped: at least half of the window can move, and a token is left after a shift.
    """
    num_kept = min(max(1, shift.num_kept), ceiling // 2)
    most = ceiling - num_kept - 1
    window = Window(ceiling, num_kept, min(shift.num_discarded, most))
    notices = []
    if shift.num_discarded > most:
        notices.append(
            Notice(
                "n_discard_clamped",
                f"`n_discard`: {shift.num_discarded} is too many; {num_kept} of this window's "
                f"{ceiling} tokens are kept, so {most} are discarded at a time",
            )
        )
    if num_tokens >= ceiling:
        notices.append(
            Notice(
                "prompt_shifted",
                f"the prompt has {num_tokens} tokens and the window {ceiling}: "
                f"{window.num_gone(num_tokens)} were discarded after the first {num_kept}",
            )
        )
    return window, tuple(notices)
