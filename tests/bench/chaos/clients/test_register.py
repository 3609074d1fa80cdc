from bench.chaos.clients.register import Register


def test_what_was_acknowledged_stays() -> None:
    register = Register()
    register.asked(1)
    register.acknowledged(1)
    assert register.finding(1) is None
    assert register.finding(0) == "the desired state is number 0; it can be [1] only"


def test_a_write_without_an_answer_may_have_happened() -> None:
    for value in (1, 2, 3):
        register = Register()
        register.asked(1)
        register.acknowledged(1)
        register.asked(2)
        register.asked(3)
        assert register.finding(value) is None


def test_a_refused_write_has_not_happened() -> None:
    register = Register()
    register.asked(1)
    register.refused(1)
    assert register.finding(1) is not None


def test_what_was_read_once_is_what_it_holds() -> None:
    register = Register()
    register.asked(1)
    assert register.finding(0) is None
    assert register.finding(1) is not None
