"""The recorder's protocol, as tests and metrics fill it."""

from arriero.balancer.fleet.recorder import Ending, Recorder
from arriero.shared.inference import RequestId, Timings, Usage
from tests.balancer.fleet.recording import RecordingRecorder


def test_a_recorder_is_told_of_an_ending_as_a_value() -> None:
    recording = RecordingRecorder()
    recorder: Recorder = recording
    ending = Ending(
        code="stop",
        request_id=RequestId("r"),
        agent="host",
        usage=Usage(),
        timings=Timings(queue_ms=0.0, first_token_ms=None, total_ms=1.0),
    )
    recorder.ended(ending)
    assert recording.endings == [ending]
    assert ending.error is None
