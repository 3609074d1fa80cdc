"""An engine's facts are a value."""

from arriero.agent.engine.capacity import Capacity


def test_compared_by_what_it_says() -> None:
    facts = {"batch_size": 8, "num_cells": 64, "num_holders": 4}
    facts |= {"can_share": True, "can_shift": True, "most_parked": 9, "most_mixed": 4}
    assert Capacity(**facts) == Capacity(**facts)
    assert Capacity(**facts) != Capacity(**{**facts, "can_share": False})
