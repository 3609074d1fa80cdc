"""The kinds that a union of a client library's models has: events, blocks, items."""

from collections.abc import Collection, Mapping
from typing import Any, get_args

from tests.balancer.api.sdk_fields import alternatives


def kinds_of(union: Any) -> set[str]:
    """The values of `type` of the models in `union`."""
    return {
        kind
        for model in alternatives(union)
        for literal in alternatives(model.model_fields["type"].annotation)
        for kind in get_args(literal)
    }


def undecided(union: Any, sent: Collection[str], never_sent: Mapping[str, str]) -> list[str]:
    """Kinds that are neither or both of `sent` and `never_sent`, and those that are in no model.

    `sent` are those that were seen; `never_sent` has the reason for each of the others.
    """
    both = never_sent.keys() & set(sent)
    return sorted(both | kinds_of(union) ^ (never_sent.keys() | set(sent)))
