"""What balancers gave, and to which of them it is shown."""

from arriero.agent.link.balancer_secrets import MAX_BALANCERS, BalancerSecrets


def test_each_balancer_is_shown_what_it_gave() -> None:
    secrets = BalancerSecrets()
    secrets.given("one", "a")
    secrets.given("two", "b")
    assert (secrets.of("one"), secrets.of("two")) == ("a", "b")
    assert secrets.of("three") is None
    assert secrets.of(None) is None, "a balancer without a name"
    assert list(secrets) == [("one", "a"), ("two", "b")]


def test_other_processes_hear_of_what_is_new() -> None:
    told: list[tuple[str, str]] = []
    secrets = BalancerSecrets(lambda *new: told.append(new))
    secrets.given("one", "a")
    secrets.given("one", "a")
    secrets.given("one", "b")
    assert told == [("one", "a"), ("one", "b")]
    assert secrets.learn("one", "c")
    assert not secrets.learn("one", "c")
    assert told == [("one", "a"), ("one", "b")], "it came from there"
    assert secrets.of("one") == "c"


def test_what_was_given_longest_ago_is_forgotten() -> None:
    secrets = BalancerSecrets()
    for number in range(MAX_BALANCERS):
        secrets.given(str(number), "a")
    secrets.given("0", "a")
    secrets.given("one more", "a")
    assert secrets.of("0") == "a"
    assert secrets.of("1") is None
    assert len(list(secrets)) == MAX_BALANCERS
