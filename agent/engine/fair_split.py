"""Sharing a budget evenly."""

from collections.abc import Sequence


def split_fairly(wants: Sequence[float], budget: float) -> list[float]:
    """Parts of `budget`, one for each want and never more than it.

    All get the same, except that what a small want leaves over goes to the larger ones (max-min
    fairness).
    """
    shares = [0.0] * len(wants)
    num_left = len(wants)
    for index in sorted(range(len(wants)), key=wants.__getitem__):
        shares[index] = min(wants[index], budget / num_left)
        budget -= shares[index]
        num_left -= 1
    return shares
