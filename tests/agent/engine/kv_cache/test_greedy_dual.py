"""What is worth most: by the cost of computing it again, and by age."""

from arriero.agent.engine.kv_cache.greedy_dual import GreedyDual


def test_what_costs_more_is_worth_more() -> None:
    policy = GreedyDual()
    assert policy.worth(1000) > policy.worth(1) > policy.worth(0)


def test_what_is_used_after_others_went_is_worth_more_than_before() -> None:
    policy = GreedyDual()
    long, short = policy.worth(1000), policy.worth(20)
    policy.went(short)
    assert policy.worth(20) > short
    policy.went(long)
    assert policy.worth(1) > long
