"""Suggestions for unknown words."""

import difflib
from collections.abc import Iterable


def meant(word: str, known: Iterable[str], otherwise: str = "see --help") -> str:
    """Return `did you mean WORD?` with the most similar known word, or `otherwise`.

    The dashes of flags are ignored in the comparison: otherwise all flags would look alike.
    """
    bare = {each.lstrip("-"): each for each in known}
    nearest = difflib.get_close_matches(word.lstrip("-"), bare, n=1)
    return f"did you mean {bare[nearest[0]]}?" if nearest else otherwise
