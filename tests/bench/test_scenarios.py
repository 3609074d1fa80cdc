from bench.scenarios import SCENARIOS, Goal


def test_goals() -> None:
    assert Goal(at_least=1.0).is_met(1.0)
    assert not Goal(at_least=1.0).is_met(0.99)
    assert Goal(at_most=0.1).is_met(0.1)
    assert not Goal(at_most=0.1).is_met(0.11)
    assert str(Goal(at_least=3.0)) == "≥ 3"
    assert str(Goal(at_most=0.35)) == "≤ 0.35"


def test_scenarios_go_by_their_names() -> None:
    assert list(SCENARIOS) == ["streams", "prefix", "stall", "newcomer", "overhead", "mixed"]
    assert all(name == scenario.name for name, scenario in SCENARIOS.items())
