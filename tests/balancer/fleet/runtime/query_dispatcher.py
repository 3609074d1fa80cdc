"""A fleet runtime for tests, with everything around it in their hands."""

from dataclasses import replace

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from tests.balancer.fleet.builders import hello, request
from tests.balancer.fleet.recording import ManualClock, RecordingPeer, RecordingRecorder

SEED = 2026
SEEDED = replace(request(), seed=SEED)


class QueryDispatcher:
    """A fleet runtime with everything around it in the test's hands."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = ManualClock()
        self.recorder = RecordingRecorder()
        self.runtime = FleetRuntime(
            Fleet(limits or Limits()),
            recorder=self.recorder,
            clock=self.clock,
            draw_seed=lambda: SEED,
            watch_interval=0.0,
        )

    def join(self, id: str = "a1", slots: int = 2) -> tuple[LinkId, RecordingPeer]:
        peer = RecordingPeer()
        return self.runtime.agent_joined(peer, hello(id, slots=slots)), peer
