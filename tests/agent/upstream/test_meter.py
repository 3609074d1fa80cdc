from arriero.agent.sequence_id import SequenceId
from arriero.agent.upstream.meter import Meter
from arriero.shared.inference import Rates, Usage

A, B = SequenceId(1), SequenceId(2)


def test_what_one_request_measures() -> None:
    meter = Meter()
    meter.started(A, 10.0)
    meter.gained(A, 1, 12.0)
    meter.gained(A, 5, 16.0)
    usage = Usage(prompt_tokens=30, cached_tokens=10, completion_tokens=9)
    assert meter.rates(A, usage) == Rates(
        prefill_tokens_per_second=10.0, decode_tokens_per_second=2.0
    )
    meter.ended(A, usage, 17.0)
    done = meter.statistics(100.0)
    assert (done.num_running, done.completion_tokens) == (0, 9)
    assert (done.cached_tokens, done.computed_tokens) == (10, 20)
    assert (done.prefill_seconds, done.decode_seconds, done.busy_seconds) == (2.0, 5.0, 7.0)


def test_time_in_which_two_run_counts_once() -> None:
    meter = Meter()
    meter.started(A, 0.0)
    meter.started(B, 1.0)
    meter.gained(A, 1, 2.0)
    meter.ended(A, Usage(completion_tokens=1), 4.0)
    done = meter.statistics(5.0)
    assert (done.num_running, done.busy_seconds, done.average_running) == (1, 5.0, 1.6)
    assert (done.prefill_seconds, done.decode_seconds) == (3.0, 2.0)


def test_an_answer_that_never_began_measures_nothing() -> None:
    meter = Meter()
    meter.started(A, 0.0)
    assert meter.rates(A, Usage()) == Rates()
    meter.ended(A, Usage(), 1.0)
    assert meter.statistics(1.0).completion_tokens == 0
