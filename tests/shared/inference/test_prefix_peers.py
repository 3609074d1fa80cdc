"""Who can use whose cells."""

import json
from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError

from arriero.shared.inference.prefix_peers import LONGEST_LOAN, Peer, PrefixSource

PEER = Peer(address="h:1", tls=False, cells="c", cell_bytes=1)


def test_peers_of_the_same_cells_and_transport_fit() -> None:
    assert PEER.can_use(replace(PEER, address="other:1"))
    assert not PEER.can_use(replace(PEER, cells="d"))
    assert not PEER.can_use(replace(PEER, tls=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": ""},
        {"address": "x" * 301},
        {"ticket": ""},
        {"ticket": "x" * 65},
        {"seconds": 0.0},
        {"seconds": LONGEST_LOAN + 1},
    ],
)
def test_a_source_is_bounded(wrong: dict[str, object]) -> None:
    right = {"address": "h:1", "ticket": "t", "seconds": LONGEST_LOAN}
    adapter = TypeAdapter(PrefixSource)
    adapter.validate_json(json.dumps(right))
    with pytest.raises(ValidationError):
        adapter.validate_json(json.dumps(right | wrong))
