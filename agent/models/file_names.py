"""Names of model files: which file of a repository has a given quantisation."""

import re
from collections.abc import Iterable

from ..gguf.split_files import files_of
from .port import FetchError

_BESIDE = re.compile(r"(^|[/._-])(mmproj|imatrix)", re.IGNORECASE)
"""Matches files that belong to a model but are not models."""

_QUANTISATION = re.compile(
    r"(?<![A-Za-z0-9])(I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32)(?![A-Za-z0-9])", re.IGNORECASE
)

_PART = re.compile(r"(-\d{5}-of-\d{5})?\.gguf$")
"""Matches the end of a file's name."""

MAX_NAMED = 20
"""Maximum names in an error."""


def pick_file(names: Iterable[str], quantisation: str, repo: str) -> str:
    """Return the model's first file.

    Raises `FetchError`: `not_found`, or `ambiguous` with the candidates.
    """
    models = _models(names)
    pattern = re.compile(
        rf"(?<![A-Za-z0-9]){re.escape(quantisation)}(?![A-Za-z0-9_])", re.IGNORECASE | re.ASCII
    )
    fitting = [name for name in models if pattern.search(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise FetchError(
            "ambiguous",
            f"{repo} has {len(fitting)} models in {quantisation}: {_listed(fitting)}",
            f"name one of them: hf://{repo}/{fitting[0]}",
        )
    raise FetchError(
        "not_found",
        f"{repo} has no model in {quantisation}",
        _what_there_is(models),
    )


def other_quantisations(first: str, names: Iterable[str]) -> list[str]:
    """Return the first files of the same model in other quantisations, by their names."""
    own = _model_in(first)
    return [name for name in _models(names) if name != first and _model_in(name) == own]


def quantisation_of(first: str, names: Iterable[str]) -> str | None:
    """Return the quantisation by which `pick_file` finds this file; `None` if there is none."""
    models = list(names)
    for found in _QUANTISATION.finditer(first.rpartition("/")[2]):
        try:
            if pick_file(models, found[1], "") == first:
                return found[1].upper()
        except FetchError:
            continue
    return None


def _model_in(name: str) -> str:
    """Return a name without folder, quantisation and part number."""
    stem = _PART.sub("", name.rpartition("/")[2])
    return _QUANTISATION.sub("", stem).casefold()


def _models(names: Iterable[str]) -> list[str]:
    """Return the first file of each model among `names`."""
    whole = (name for name in names if name.endswith(".gguf") and not _BESIDE.search(name))
    return sorted({_first(name) for name in whole})


def _first(name: str) -> str:
    try:
        return files_of(name)[0]
    except ValueError:
        return name


def _what_there_is(models: list[str]) -> str:
    known = {found[1].upper() for name in models for found in _QUANTISATION.finditer(name)}
    if known:
        return f"it has {_listed(sorted(known))}"
    return f"it has {_listed(models)}" if models else "it has no GGUF files at all"


def _listed(names: list[str]) -> str:
    rest = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
