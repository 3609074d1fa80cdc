"""Hypothesis strategies for JSON: any at all, and objects that are nearly right."""

from typing import Any

from hypothesis import strategies as st

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["", "user", "text", "2.0", "ping"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def objects_like(example: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Objects with some of `example`'s members, as they are or with any value, and strange ones."""
    member = {
        name: st.just(value) | JSON_VALUES | st.lists(JSON_VALUES, max_size=3)
        for name, value in example.items()
    }
    strange = st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=1)
    known = st.fixed_dictionaries({}, optional=member)
    return st.builds(lambda a, b: {**b, **a}, known, strange)
