"""What operators do: an example for each."""

import pytest

from arriero.balancer.fleet.core.operations import LOGS_SINCE
from arriero.shared.errors import NotFound, NotSupported
from arriero.shared.inference import AgentId, RequestId
from tests.balancer.fleet.builders import hello, sent
from tests.balancer.fleet.core.scene import A, Scene, start, with_agent

NOBODY = AgentId("nobody")
READ = RequestId("read")


def test_an_agent_that_is_not_here_is_named() -> None:
    fleet = Scene().fleet
    for ask in (
        lambda: fleet.cordon(NOBODY, None, 0.0),
        lambda: fleet.resume(NOBODY, 0.0),
        lambda: fleet.reload(NOBODY, 1.0, 0.0),
        lambda: fleet.read_log(READ, NOBODY, 0, 0.0),
    ):
        with pytest.raises(NotFound, match="`nobody`"):
            ask()


def test_an_agent_too_old_to_show_its_log_is_not_asked() -> None:
    scene = Scene()
    scene.join(A, hello("old", protocol=LOGS_SINCE - 1))
    with pytest.raises(NotSupported, match="upgrade it"):
        scene.fleet.read_log(READ, AgentId("old"), 0, scene.now)
    assert scene.fleet.stop_reading_log(READ, scene.now) == []


def test_a_cordoned_agent_gets_nothing_until_it_is_resumed() -> None:
    scene = with_agent()
    scene.fleet.cordon(AgentId("a1"), None, scene.now)
    assert sent(scene.open("r")) == []
    assert sent(scene.fleet.resume(AgentId("a1"), scene.now)) == [start("r")]
