"""Compares what a suite finds with the list of what may fail."""

from collections.abc import Mapping


def judge(found: Mapping[str, str | None], may_fail: Mapping[str, str]) -> None:
    """Fails if the suite's findings are not those that are listed.

    `found` says of each check what is wrong, or `None` if it passed; `may_fail` says of each check
    that fails why it may. A check that is listed and passes is an error, too: so the list is never
    longer than it has to be.
    """
    assert found, "the suite has run no checks"
    wrong = {name: finding for name, finding in found.items() if finding is not None}
    new = [f"{name}: {finding}" for name, finding in wrong.items() if name not in may_fail]
    assert not new, "\n".join([f"{len(new)} of {len(found)} checks fail:", *new])
    passing = sorted(may_fail.keys() - wrong.keys())
    assert not passing, f"listed as failing, but these pass or were not run: {passing}"
