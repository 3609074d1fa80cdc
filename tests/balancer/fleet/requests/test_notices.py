from arriero.balancer.fleet.requests.notices import MAX_NOTICES, Notices
from arriero.shared.inference import Notice


def test_a_notice_is_told_once() -> None:
    notices = Notices()
    assert notices.is_new(Notice("odd", "so"))
    assert not notices.is_new(Notice("odd", "so"))
    assert notices.is_new(Notice("odd", "or so"))
    assert notices.last is None


def test_those_beyond_a_number_are_counted() -> None:
    notices = Notices()
    told = [notices.is_new(Notice("odd", str(number))) for number in range(MAX_NOTICES + 2)]
    assert told == [True] * MAX_NOTICES + [False, False]
    assert not notices.is_new(Notice("odd", "0")), "told, so not left out"
    assert notices.last == Notice(
        "notices_left_out", "only the first 64 notices are passed on; left out: 2"
    )
