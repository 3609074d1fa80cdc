"""Keys of adapters."""

import pytest

from arriero.agent.engine.adapter import AdapterUse, adapter_key, adapter_uses

A, B = AdapterUse("aa"), AdapterUse("bb", 0.1)


def test_a_key_stands_for_what_is_added_in_any_order() -> None:
    assert adapter_key([A, B]) == adapter_key([B, A]) == "aa*1.0+bb*0.1"
    assert adapter_uses("aa*1.0+bb*0.1") == (A, B)
    assert adapter_key([AdapterUse("aa", 0.5)]) != adapter_key([A])


def test_nothing_added_is_the_model_alone() -> None:
    assert adapter_key([]) is adapter_key([AdapterUse("aa", 0.0)]) is None
    assert adapter_uses(None) == ()


def test_what_is_used_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="used twice"):
        adapter_key([A, AdapterUse("aa", 0.5)])
