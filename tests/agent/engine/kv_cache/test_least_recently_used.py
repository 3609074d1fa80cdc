"""The plain policy, beside GreedyDual."""

from arriero.agent.engine.kv_cache.least_recently_used import LeastRecentlyUsed


def test_what_was_used_last_is_worth_most_whatever_it_costs() -> None:
    policy = LeastRecentlyUsed()
    first, second = policy.worth(1000), policy.worth(1)
    policy.went(first)
    assert first < second < policy.worth(0)
