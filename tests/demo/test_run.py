"""What the demo says of its addresses."""

from demo.run import other_ports

USUAL = {"inference": "http://127.0.0.1:8061", "management": "http://127.0.0.1:8060"}


def test_the_usual_ports_are_not_worth_a_word() -> None:
    assert other_ports(USUAL) == ""


def test_other_ports_say_that_the_usual_ones_are_taken() -> None:
    words = other_ports(USUAL | {"inference": "http://127.0.0.1:40001"})
    assert words.startswith("Something else has port 8061, maybe another demo")
    both = other_ports(dict.fromkeys(USUAL, "http://127.0.0.1:40001"))
    assert "port 8061 and port 8060" in both
