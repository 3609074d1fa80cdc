from typing import Any

import pytest

from arriero.cli.plan import changes

OLD: dict[str, Any] = {
    "models": [
        {
            "name": "m",
            "source": "file:///m",
            "slots": 4,
            "aliases": [],
            "agents": {"labels": {}, "replicas": "all"},
            "preload": True,
        }
    ]
}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ([{"name": "m", "source": "file:///m", "slots": 4}], [(" ", "m")]),
        ([{"name": "m", "source": "file:///m", "slots": 8}], [("~", "m: slots 4 -> 8")]),
        ([{"name": "m", "source": "file:///m"}], [("~", "m: slots 4 -> default")]),
        ([], [("-", "m")]),
        (
            [{"name": "n", "source": "file:///n"}],
            [("+", "n from file:///n"), ("-", "m")],
        ),
    ],
)
def test_models_that_come_go_and_change(
    new: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    assert list(changes(OLD, {"models": new})) == expected


def test_long_values_are_cut() -> None:
    [(sign, text)] = changes(OLD, {"models": [OLD["models"][0] | {"chat_template": "x" * 999}]})
    assert (sign, len(text) < 80) == ("~", True)
