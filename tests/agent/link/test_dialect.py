from dataclasses import replace

import pytest

from arriero.agent.link.dialect import Dialect
from arriero.shared.inference.prefix_peers import Peer
from arriero.shared.messages import (
    MAX_ISSUES,
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Issue,
    Status,
    decode_from_agent,
    encode_from_agent,
)
from arriero.shared.reports.model_info import ModelInfo, Task
from arriero.shared.reports.statistics import Fetches, Statistics

from .sessions import HELLO

PLAIN = ModelInfo(name="m", architecture="a", parameters=1, size_bytes=1, context_size=1)
MARKED = replace(PLAIN, fingerprint="f")
STATUS = Status(slots=1, accepting=True, model=MARKED)


def speak(dialect: Dialect, version: int) -> None:
    while dialect.version > version:
        assert dialect.step_down()


def test_balancers_before_version_10_are_not_told_of_evictions() -> None:
    dialect = Dialect()
    assert dialect.knows_evictions
    speak(dialect, 9)
    assert not dialect.knows_evictions


def test_the_newest_is_offered_then_older_ones() -> None:
    dialect = Dialect()
    offered = [dialect.hello(HELLO).protocol]
    while dialect.step_down():
        offered.append(dialect.hello(HELLO).protocol)
    assert offered == [*range(PROTOCOL_VERSION, OLDEST_PROTOCOL - 1, -1)]
    dialect.renew()
    assert dialect.hello(HELLO).protocol == PROTOCOL_VERSION


def test_a_hello_has_nothing_that_the_oldest_version_does_not_know() -> None:
    hello = Dialect().hello(replace(HELLO, model=MARKED, loading=MARKED))
    assert (hello.model, hello.loading) == (PLAIN, PLAIN)


def test_a_status_has_what_its_version_knows() -> None:
    dialect = Dialect()
    assert dialect.status(STATUS) == STATUS
    while dialect.step_down():
        pass
    assert dialect.status(STATUS) == replace(STATUS, model=PLAIN)


def test_older_balancers_are_not_told_of_draft_models() -> None:
    dialect = Dialect()
    drafting, statistics = (
        replace(MARKED, draft_model="d"),
        Statistics(num_draft_cells=5, num_media_bytes=7),
    )
    assert dialect.hello(replace(HELLO, model=drafting)).model == PLAIN
    assert dialect.status(replace(STATUS, model=drafting)).model == drafting
    assert dialect.statistics(statistics) == statistics
    speak(dialect, 8)
    assert dialect.status(replace(STATUS, model=drafting)).model == MARKED
    assert dialect.statistics(statistics) == Statistics()


@pytest.mark.parametrize(("sense", "since"), [("vision", 9), ("audio", 10)])
def test_older_balancers_are_not_told_of_senses(sense: Task, since: int) -> None:
    seeing = replace(MARKED, tasks=("generate", sense))
    dialect = Dialect()
    hello = dialect.hello(replace(HELLO, model=seeing))
    assert hello.model == PLAIN
    speak(dialect, since)
    assert dialect.status(replace(STATUS, model=seeing)).model == seeing
    speak(dialect, since - 1)
    assert dialect.status(replace(STATUS, model=seeing)).model == MARKED


def test_what_a_version_knows_stays_when_sounds_are_left_out() -> None:
    dialect = Dialect()
    speak(dialect, 9)
    sees = replace(MARKED, tasks=("generate", "vision"), draft_model="d", adapters=("loud",))
    hears = replace(sees, tasks=("generate", "vision", "audio"))
    assert dialect.status(replace(STATUS, model=hears)).model == sees


def test_older_balancers_are_not_told_of_adapters() -> None:
    dialect, adapted = Dialect(), replace(MARKED, adapters=("loud",))
    assert dialect.hello(replace(HELLO, model=adapted)).model == PLAIN
    assert dialect.status(replace(STATUS, model=adapted)).model == adapted
    speak(dialect, 8)
    assert dialect.status(replace(STATUS, model=adapted)).model == MARKED


def test_balancers_before_version_11_are_not_told_of_peers_and_fetches() -> None:
    dialect = Dialect()
    peer = Peer(address="h:1", tls=False, cells="c", cell_bytes=1)
    status, statistics = replace(STATUS, peer=peer), Statistics(fetches=Fetches(num=1))
    assert dialect.status(status) == status
    assert dialect.statistics(statistics) == statistics
    speak(dialect, 10)
    assert dialect.status(status) == STATUS
    assert dialect.statistics(statistics) == Statistics()


def test_balancers_before_version_12_are_not_told_which_adapter_an_issue_is_about() -> None:
    dialect = Dialect()
    plain = Issue(code="adapter", message="adapter `calm`: it is gone")
    status = replace(STATUS, issues=(replace(plain, adapter="calm"),))
    assert dialect.status(status) == status
    speak(dialect, 11)
    assert dialect.status(status) == replace(STATUS, issues=(plain,))


def test_what_files_and_servers_say_is_short_enough_to_be_sent() -> None:
    whole = replace(PLAIN, architecture="a" * 999, parameters=2**60, context_size=2**40)
    issue = Issue(code="c", message="m" * 10**5, hint="h" * 10**5)
    said = replace(STATUS, model=whole, issues=(issue,) * 99)
    told = Dialect().status(said)
    assert decode_from_agent(encode_from_agent(told)) == told
    assert len(told.issues) == MAX_ISSUES
    hello = Dialect().hello(replace(HELLO, model=whole, loading=whole))
    assert decode_from_agent(encode_from_agent(hello)) == hello
