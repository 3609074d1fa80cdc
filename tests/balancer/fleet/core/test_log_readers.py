from arriero.balancer.fleet.core.log_readers import LogReaders
from arriero.balancer.fleet.decisions import LinkId, LogLost, Send
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import LogRead, ReadLog, Withdraw
from tests.balancer.fleet.builders import hello
from tests.balancer.fleet.core.scene import A, B, Scene

R, S = RequestId("r"), RequestId("s")


def test_each_ends_once() -> None:
    readers = LogReaders()
    readers.asked(R, LinkId(1))
    readers.asked(S, LinkId(2))
    assert readers.ended(R) == LinkId(1)
    assert readers.ended(R) is None
    assert readers.left(LinkId(1)) == ()
    assert readers.left(LinkId(2)) == (S,)
    assert len(readers) == 0


def read(scene: Scene, id: RequestId) -> None:
    [asked] = scene.fleet.read_log(id, AgentId("a"), 4, scene.now, wait=True)
    assert asked == Send(A, ReadLog(id=id, after=4, wait=True))


def test_a_read_that_is_given_up_is_withdrawn_and_an_answered_one_is_not() -> None:
    scene = Scene()
    scene.join(A, hello("a"))
    read(scene, R)
    assert scene.fleet.stop_reading_log(R, scene.now) == [Send(A, Withdraw(id=R))]
    assert scene.fleet.stop_reading_log(R, scene.now) == []
    read(scene, R)
    scene.fleet.agent_said(A, LogRead(id=R), scene.now)
    assert scene.fleet.stop_reading_log(R, scene.now) == []


def test_reads_end_with_their_link() -> None:
    scene = Scene()
    scene.join(A, hello("a"))
    read(scene, R)
    assert LogLost((R,)) in scene.leave(A)
    assert scene.fleet.stop_reading_log(R, scene.now) == []


def test_reads_end_when_another_process_takes_over() -> None:
    scene = Scene()
    scene.join(A, hello("a"))
    read(scene, R)
    assert LogLost((R,)) in scene.join(B, hello("a", takes_over=True))
