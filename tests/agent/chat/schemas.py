"""JSON Schemas of many kinds."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "name", "of it", "é", 'q"'])
SCALARS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-50, 50),
        st.integers(0, 500),
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.sampled_from(
        [
            {"type": "string", "pattern": "^[a-c]{1,3}$"},
            {"type": "string", "format": "date"},
            {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
            {"const": {"k": [1, None]}},
        ]
    ),
    st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=3), st.none()), min_size=1).map(
        lambda values: {"enum": values}
    ),
)


def objects(children: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, children, max_size=3).flatmap(
        lambda properties: st.builds(
            lambda required, is_open: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                **({} if is_open else {"additionalProperties": False}),
            },
            st.sets(st.sampled_from(sorted(properties))) if properties else st.just(set[str]()),
            st.booleans(),
        )
    )


SCHEMAS = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        objects(children),
        st.builds(
            lambda items, least, more: {
                "type": "array",
                "items": items,
                "minItems": least,
                "maxItems": least + more,
            },
            children,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.lists(children, min_size=1, max_size=3).map(lambda ways: {"anyOf": ways}),
    ),
    max_leaves=6,
)
