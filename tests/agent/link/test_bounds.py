from dataclasses import replace

from arriero.agent.link.bounds import bounded_hello, bounded_status
from arriero.shared.messages import (
    MAX_ISSUES,
    Issue,
    Status,
    decode_from_agent,
    encode_from_agent,
)
from arriero.shared.reports.model_info import ModelInfo

from .sessions import HELLO

MODEL = ModelInfo(name="m", architecture="a", parameters=1, size_bytes=1, context_size=1)
STATUS = Status(slots=1, accepting=True, model=MODEL)


def test_what_files_and_servers_say_is_short_enough_to_be_sent() -> None:
    whole = replace(MODEL, architecture="a" * 999, parameters=2**60, context_size=2**40)
    issue = Issue(code="c", message="m" * 10**5, hint="h" * 10**5)
    told = bounded_status(replace(STATUS, model=whole, issues=(issue,) * 99))
    assert decode_from_agent(encode_from_agent(told)) == told
    assert len(told.issues) == MAX_ISSUES
    hello = bounded_hello(replace(HELLO, model=whole, loading=whole))
    assert decode_from_agent(encode_from_agent(hello)) == hello


def test_what_is_within_bounds_is_sent_as_it_is() -> None:
    status = replace(STATUS, issues=(Issue(code="c", message="m", hint="h", adapter="a"),))
    assert bounded_status(status) == status
    assert bounded_hello(replace(HELLO, model=MODEL)) == replace(HELLO, model=MODEL)
