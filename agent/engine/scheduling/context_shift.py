"""Context shift: which tokens a sequence discards when it reaches the slot's context size.

The first tokens stay (a system prompt, or at least the attention sinks). The oldest tokens after
them are discarded, a fixed number at a time. A prompt that is longer than the window is cut before
it is read, so nothing is computed only to be discarded.
"""

from dataclasses import dataclass

from ....shared.inference import Notice
from ..prompt import Prompt
from ..sequence import ContextShift


@dataclass(frozen=True, slots=True)
class Window:
    """A sequence's window: at `ceiling` tokens it discards `num_discarded` after `num_kept`."""

    ceiling: int
    num_kept: int
    num_discarded: int

    def fit(self, prompt: Prompt) -> Prompt:
        """Return `prompt` cut to the window, with room for one token of the answer."""
        num_gone = self.num_gone(len(prompt))
        return prompt.without(self.num_kept, num_gone) if num_gone else prompt

    def num_gone(self, num_tokens: int) -> int:
        """Return how many tokens of a prompt are discarded before it is computed."""
        excess = max(0, num_tokens - (self.ceiling - 1))
        return -(-excess // self.num_discarded) * self.num_discarded


_COMPUTED_ANEW = Notice(
    "resumed_anew",
    "another agent continues the answer, and computes its window again without the discarded "
    "tokens: the rest may differ from what the first agent would have written",
)


def open_window(
    shift: ContextShift, ceiling: int, num_tokens: int, num_said: int = 0
) -> tuple[Window, tuple[Notice, ...]]:
    """Return the window of a prompt of `num_tokens`, and the notices for the client.

    `shift` is clamped: at least half of the window can move, and a shift frees at least one token.
    Another engine generated the `num_said` tokens after the prompt.
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
    if window.num_gone(num_tokens + num_said) > window.num_gone(num_tokens):
        notices.append(_COMPUTED_ANEW)
    return window, tuple(notices)
