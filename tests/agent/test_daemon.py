import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from arriero.agent import daemon
from arriero.agent.engine.load_options import LoadOptions
from arriero.agent.engine.loaded_model import LoadedModel
from arriero.agent.engine.model_error import ModelError
from arriero.agent.engine.sequence import SequenceOutput
from arriero.agent.engine.statistics import Gone
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Change,
    Changed,
    Dial,
    Loaded,
    Ordered,
    Ready,
    Report,
    ReportStatus,
    ShareThreads,
    SupervisorChannel,
)
from arriero.shared.continuation import Continuation
from arriero.shared.inference import AgentId, ChatMessage, GenerateRequest, RequestId
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.lifecycle import Shutdown, StartupError
from arriero.shared.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Ask,
    Busy,
    Ended,
    Evicted,
    Hello,
    Issue,
    Lend,
    Piece,
    PromptRead,
    Refused,
    Reject,
    Reply,
    Start,
    Status,
)
from arriero.shared.models.assignments import Assign, Assignment, HostFacts, Work
from arriero.shared.quantities import Address
from arriero.shared.queries import Embed, Embedded
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.sampling import SamplingChoices
from tests.agent.engine.fake_embedding import FakeEmbedding
from tests.agent.fakes import (
    BOS,
    BYTES_INFO,
    WELCOME,
    ByteVocab,
    Expected,
    FakeBalancer,
    FakeWorker,
    byte_model,
    ends_soon,
    soon,
)
from tests.agent.stored import whole

MODEL = Path("m.gguf")


class SlowWorker(FakeWorker):
    """Loads when the test says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_loading = threading.Event()
        self.may_go_on = threading.Event()

    def start(self) -> LoadedModel:
        self.is_loading.set()
        self.may_go_on.wait()
        return super().start()


FACTS = HostFacts(memory=2**30, cores=2)
WORK = Work(revision=3, phase="serving")
ASSIGNMENT = Assignment(
    name="wished", source="file:///m.gguf", sampling=SamplingChoices(temperature=0.25)
)
CRASHED = Issue(code="engine_crashed", message="it was started again")


class Agent:
    """The daemon over a fake worker; its supervisor tells it to dial as soon as it may."""

    def __init__(
        self,
        worker: FakeWorker | None = None,
        *,
        assignment: Assignment | None = None,
        **settings: Any,
    ) -> None:
        self.worker = worker or FakeWorker(MODEL)
        self.settings = AgentSettings(**{"model": MODEL, "name": "box", **settings})
        self.shutdown = Shutdown()
        self.reports: list[Report] = []
        self.reported: asyncio.Queue[Report] = Expected()
        begin = Begin(
            agent_id=AgentId("a1"), settings=self.settings, facts=FACTS, assignment=assignment
        )
        self.channel = SupervisorChannel(begin, self.report)
        self.channel.dials.put_nowait(Dial())

    def report(self, report: Report) -> None:
        self.reports.append(report)
        self.reported.put_nowait(report)

    def make_worker(
        self,
        model_path: Path,
        options: LoadOptions,
        *,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
        on_change: Callable[[], None],
        beside: Mapping[str, int],
    ) -> FakeWorker:
        self.worker.path, self.worker.options = model_path, options
        self.worker.on_step, self.worker.on_crash = on_step, on_crash
        self.worker.on_change = on_change
        return self.worker

    async def run(self) -> None:
        await daemon.main(self.settings, self.shutdown, self.channel, make_worker=self.make_worker)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Runs the daemon; at the end it is asked to stop and must."""
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            self.shutdown.request("the test is over")
            await ends_soon(task)
            assert self.worker.is_stopped


def loaded(agent: Agent, name: str) -> ModelInfo:
    """The model under that name, with the options that it is loaded with."""
    return replace(BYTES_INFO, name=name, engine=agent.settings.load_options.view)


@pytest.fixture
async def balancer() -> AsyncIterator[FakeBalancer]:
    async with FakeBalancer.open() as balancer:
        yield balancer


def one_startup_error(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, StartupError)
    return str(error)


async def test_the_worker_gets_the_settings(balancer: FakeBalancer) -> None:
    options: dict[str, Any] = {
        "slots": 3,
        "context_size": 32,
        "threads": 5,
        "max_stall": 0.25,
        "speculate": 2,
    }
    agent = Agent(balancer=(balancer.url,), **options)
    async with agent.running():
        await balancer.peer()
    assert agent.worker.path == MODEL
    assert agent.worker.options == LoadOptions(**options)


async def test_says_what_it_is_and_that_it_is_ready_once(balancer: FakeBalancer) -> None:
    async with FakeBalancer.open() as other:
        agent = Agent(balancer=(balancer.url, other.url), slots=3, drain_timeout=0.01)
        async with agent.running():
            peer = await balancer.peers.get()
            hello = await peer.next()
            assert isinstance(hello, Hello)
            assert (hello.name, hello.slots, hello.model) == ("box", 3, loaded(agent, "bytes"))
            assert hello.agent_id == "a1"
            assert agent.reports == [Loaded(model=BYTES_INFO)]
            await peer.say(WELCOME)
            for each in (peer, await other.peer()):
                await each.start("r")
                await agent.worker.added.get()
    assert agent.reports == [Loaded(model=BYTES_INFO), Ready()]


async def test_a_model_that_only_embeds_has_no_slots_and_answers_queries(
    balancer: FakeBalancer,
) -> None:
    agent = Agent(balancer=(balancer.url,), slots=3)
    info = replace(BYTES_INFO, tasks=("embed",))
    embedding = FakeEmbedding()
    agent.worker.model = replace(byte_model(None), info=info, embedding=embedding)
    async with agent.running():
        peer = await balancer.peers.get()
        hello = await peer.next()
        assert isinstance(hello, Hello)
        options = agent.settings.load_options.view
        assert (hello.slots, hello.model) == (0, replace(info, engine=options))
        await peer.say(WELCOME)
        await peer.say(Ask(id=RequestId("q"), query=Embed(inputs=((1, 2),))))
        reply = await peer.next()
        assert isinstance(reply, Reply) and isinstance(reply.result, Embedded)
        assert reply.result.vectors[0].num_tokens == 2
    assert embedding.context.is_free, "before the weights go"


async def test_dials_nobody_before_it_is_told_to(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    agent.channel.dials.get_nowait()
    async with agent.running():
        assert await agent.reported.get() == Loaded(model=BYTES_INFO)
        assert balancer.paths == []
        agent.shutdown.request("SIGTERM")
    assert balancer.paths == []


async def test_tells_of_crashes_and_when_they_are_forgotten(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    agent.worker.model = byte_model("{% if %}")
    agent.channel.dials.get_nowait()
    agent.channel.dials.put_nowait(Dial(issues=(CRASHED,)))
    async with agent.running():
        peer = await balancer.peer()
        status = await peer.next()
        assert isinstance(status, Status)
        template, crash = status.issues
        assert crash == CRASHED
        agent.channel.orders.put_nowait(ReportStatus(work=WORK))
        status = await peer.next()
        assert isinstance(status, Status)
        assert (status.issues, status.work) == ((template,), WORK)


async def test_the_engine_computes_with_its_share_of_threads(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    async with agent.running():
        peer = await balancer.peer()
        agent.channel.orders.put_nowait(ShareThreads(threads=3, threads_batch=5))
        agent.channel.orders.put_nowait(ReportStatus(work=WORK))
        while not isinstance(status := await peer.next(), Status) or status.work != WORK:
            pass
        assert agent.worker.threads == (3, 5)


async def test_a_request_through_all_of_it(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    async with agent.running():
        peer = await balancer.peer()
        await peer.start("r", "hi")
        sequence = await agent.worker.added.get()
        await asyncio.to_thread(agent.worker.say, sequence, "yes", is_last=True)
        read, piece, ended = (await peer.output()).items
        assert isinstance(read, PromptRead)
        assert isinstance(piece, Piece) and isinstance(ended, Ended)
        assert piece.text == "yes"


class BrokenVocab(ByteVocab):
    """A mistake of ours: one token has no piece."""

    def piece(self, token: int) -> bytes:
        if token == ord("?"):
            raise IndexError("a mistake of ours")
        return super().piece(token)


async def test_an_answer_that_breaks_ends_alone(
    balancer: FakeBalancer, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(balancer=(balancer.url,))
    agent.worker.model = replace(byte_model(), vocab=BrokenVocab())
    async with agent.running():
        peer = await balancer.peer()
        await peer.start("r", "hi")
        guilty = await agent.worker.added.get()
        await peer.start("s", "hi")
        bystander = await agent.worker.added.get()
        agent.worker.say(guilty, "so?")
        [refused] = (await peer.output()).items
        assert isinstance(refused, Refused)
        assert (refused.id, refused.error.code) == ("r", "internal_error")
        assert await agent.worker.dropped.get() == guilty.id
        agent.worker.say(bystander, "yes", is_last=True)
        assert isinstance((await peer.output()).items[-1], Ended)
    assert "IndexError: a mistake of ours" in caplog.text


async def test_an_answer_goes_on_where_another_agent_stopped(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,), drain_timeout=0.01)
    async with agent.running():
        peer = await balancer.peer()
        continuation = Continuation.after([*b"ab"], num_characters=1)
        start = Start(
            id=RequestId("r"), request=GenerateRequest(prompt="x"), continuation=continuation
        )
        await peer.say(start)
        sequence = await agent.worker.added.get()
        assert sequence.said == tuple(b"ab")
        assert (await peer.output()).items == (Piece(id=start.id, text="b"),)


async def test_a_prompt_is_saved_before_the_end_is_told(
    balancer: FakeBalancer, tmp_path: Path
) -> None:
    model, folder = tmp_path / "m.gguf", tmp_path / "cache"
    model.write_bytes(b"GGUF")
    agent = Agent(model=model, balancer=(balancer.url,), cache_dir=folder, drain_timeout=0.01)
    async with agent.running():
        peer = await balancer.peers.get()
        hello = await peer.next()
        assert isinstance(hello, Hello) and hello.model and hello.model.fingerprint
        await peer.say(WELCOME)
        request = GenerateRequest(prompt="x", stop=("!",), cache_key="k", save_cache=True)
        await peer.say(Start(id=RequestId("r"), request=request))
        sequence = await agent.worker.added.get()
        saved = agent.worker.kept = whole(sequence.prompt.tokens, b"state")
        agent.worker.say(sequence, "yes!")
        [piece] = (await peer.output()).items
        assert isinstance(piece, Piece) and piece.text == "yes"
        assert await agent.worker.dropped.get() == sequence.id
        [ended] = (await peer.output()).items
        assert isinstance(ended, Ended) and ended.finish_reason == "stop"
        assert len(list(folder.iterdir())) == 1

        await peer.say(Start(id=RequestId("s"), request=GenerateRequest(prompt="x", cache_key="k")))
        assert (await agent.worker.added.get()).stored == saved


async def test_tells_what_its_engine_did(balancer: FakeBalancer) -> None:
    async with FakeBalancer.open() as other:
        agent = Agent(balancer=(balancer.url, other.url))
        async with agent.running():
            peers = [await balancer.peer(), await other.peer()]
            for peer in peers:
                assert (await peer.statistics()).cells.total == 64
            await peers[0].start("r", "hi")
            sequence = await agent.worker.added.get()
            agent.worker.done = replace(agent.worker.done, completion_tokens=3)
            agent.worker.gone = Gone((5, 6))
            agent.worker.say(sequence, "yes", is_last=True)
            for peer in peers:
                assert (await peer.statistics()).completion_tokens == 3
                assert await peer.next() == Evicted(keys=(5, 6))


async def test_a_stalled_engine_gets_nothing_new_until_it_gets_on(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    stalled = Issue(code="engine_stalled", message="a step takes long")
    async with agent.running():
        peer = await balancer.peer()
        agent.channel.orders.put_nowait(ReportStatus(issues=(stalled,), is_stalled=True))
        status = await peer.next()
        assert isinstance(status, Status)
        assert (status.slots, status.issues) == (0, (stalled,))
        await peer.start("r", "hi")
        assert [type(item) for item in (await peer.output()).items] == [Busy]
        agent.channel.orders.put_nowait(ReportStatus())
        status = await peer.next()
        assert isinstance(status, Status)
        assert (status.slots, status.issues) == (agent.settings.slots, ())


async def test_nothing_is_taken_while_commands_pile_up(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    async with agent.running():
        peer = await balancer.peer()
        agent.worker.is_full = True
        await peer.start("r", "hi")
        assert [type(item) for item in (await peer.output()).items] == [Busy]
        agent.worker.is_full = False
        agent.worker.on_change()
        assert isinstance(await peer.next(), Status), "there is room again"
        await peer.start("s", "hi")
        agent.worker.say(await agent.worker.added.get(), "yes", is_last=True)


async def test_drafts_that_failed_are_an_issue(balancer: FakeBalancer) -> None:
    agent = Agent(balancer=(balancer.url,))
    async with agent.running():
        peer = await balancer.peer()
        agent.worker.failure = "ZeroDivisionError: no guess"
        agent.worker.on_change()
        status = await peer.next()
        assert isinstance(status, Status)
        (issue,) = status.issues
        assert issue.code == "drafts_off"
        assert issue.message.endswith("failed: ZeroDivisionError: no guess")


async def test_a_template_that_does_not_compile_is_an_issue(
    balancer: FakeBalancer, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(balancer=(balancer.url,))
    agent.worker.model = byte_model("{% if %}")
    async with agent.running():
        status = await (await balancer.peer()).next()
        assert isinstance(status, Status)
        [issue] = status.issues
        assert issue.code == "chat_template"
        assert "line 1" in issue.message
    assert issue.message in caplog.text


class TestAnAssignment:
    async def test_says_what_it_is_and_how_far(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,), assignment=ASSIGNMENT, label=("gpu=yes",))
        agent.channel.dials.get_nowait()
        agent.channel.dials.put_nowait(Dial(takes_over=True, work=WORK))
        async with agent.running():
            hello = await (await balancer.peers.get()).next()
            assert isinstance(hello, Hello)
            assert hello.model == loaded(agent, "wished")
            assert (hello.labels, hello.facts) == ({"gpu": "yes"}, FACTS)
            assert (hello.work, hello.takes_over) == (WORK, True)

    async def test_orders_are_passed_on(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,))
        async with agent.running():
            peer = await balancer.peer()
            order = Assign(revision=1, assignment=ASSIGNMENT)
            await peer.say(order)
            while await agent.reported.get() != Ordered(order=order):
                pass

    async def test_a_change_while_a_stream_runs(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,), assignment=ASSIGNMENT, drain_timeout=0.01)
        async with agent.running():
            peer = await balancer.peer()
            await peer.start("r", "hi")
            first = await agent.worker.added.get()
            assert first.sampling.temperature == 0.25
            new = replace(
                ASSIGNMENT,
                name="other",
                slots=1,
                sampling=SamplingChoices(temperature=0.75),
                chat_template="changed: {{ messages[0].content }}",
            )
            agent.channel.orders.put_nowait(Change(assignment=new))
            status = await peer.next()
            assert isinstance(status, Status)
            assert (status.slots, status.model) == (1, loaded(agent, "other"))
            while await agent.reported.get() != Changed(assignment=new):
                pass
            await peer.start("s", "hi")
            [busy] = (await peer.output()).items
            assert isinstance(busy, Busy), "one slot, and it is taken"
            agent.worker.say(first, "yes", is_last=True)
            assert isinstance((await peer.output()).items[-1], Ended)
            assert isinstance(await peer.next(), Status), "there is room again"
            messages = (ChatMessage(role="user", content="hi"),)
            request = GenerateRequest(messages=messages)
            await peer.say(Start(id=RequestId("t"), request=request))
            second = await agent.worker.added.get()
            assert second.sampling.temperature == 0.75
            assert bytes(t for t in second.prompt.tokens if t < 256) == b"changed: hi"

    async def test_a_change_to_a_broken_template_is_refused(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,), assignment=ASSIGNMENT)
        async with agent.running():
            peer = await balancer.peer()
            broken = replace(ASSIGNMENT, name="other", chat_template="{% if %}")
            agent.channel.orders.put_nowait(Change(assignment=broken))
            while not isinstance(changed := await agent.reported.get(), Changed):
                pass
            assert changed.assignment == broken
            assert changed.issue is not None and changed.issue.code == "chat_template"
            assert "line 1" in changed.issue.message
            agent.channel.orders.put_nowait(ReportStatus(work=WORK))
            status = await peer.next()
            assert isinstance(status, Status)
            assert status.model == loaded(agent, "wished"), "as before"

    async def test_adapters_come_and_go(self, balancer: FakeBalancer, tmp_path: Path) -> None:
        calm, loud = (self.adapter(tmp_path, name) for name in ("calm", "loud"))
        agent = Agent(balancer=(balancer.url,), assignment=ASSIGNMENT)
        async with agent.running():
            peer = await balancer.peer()
            for flags in ((calm, f"{loud}:0.5"), (loud,), ()):
                agent.channel.orders.put_nowait(Change(assignment=ASSIGNMENT, adapter=flags))
                status = await peer.next()
                assert isinstance(status, Status) and status.model is not None
                names = tuple(flag.partition("=")[0] for flag in flags)
                assert status.model.adapters == names
                assert sorted(path.stem for path in agent.worker.adapters.values()) == [*names]

    async def test_an_adapter_that_cannot_be_had_is_named(
        self, balancer: FakeBalancer, tmp_path: Path
    ) -> None:
        calm, broken = (self.adapter(tmp_path, name) for name in ("calm", "broken"))
        agent = Agent(balancer=(balancer.url,), assignment=ASSIGNMENT)
        async with agent.running():
            peer = await balancer.peer()
            agent.channel.orders.put_nowait(Change(assignment=ASSIGNMENT, adapter=(calm,)))
            assert isinstance(await peer.next(), Status)
            for flag, said in ((broken, "broken.gguf"), ("gone=/gone.gguf", "cannot be read")):
                agent.channel.orders.put_nowait(Change(assignment=ASSIGNMENT, adapter=(calm, flag)))
                while not isinstance(changed := await agent.reported.get(), Changed) or (
                    changed.issue is None
                ):
                    pass
                assert changed.issue.code == "adapter"
                assert f"adapter `{flag.partition('=')[0]}`: " in changed.issue.message
                assert said in changed.issue.message
            agent.channel.orders.put_nowait(ReportStatus(work=WORK))
            status = await peer.next()
            assert isinstance(status, Status) and status.model is not None
            assert status.model.adapters == ("calm",), "as before"

    async def test_a_first_load_leaves_out_what_cannot_be_had(
        self, balancer: FakeBalancer, tmp_path: Path
    ) -> None:
        calm, broken, loud = (self.adapter(tmp_path, one) for one in ("calm", "broken", "loud"))
        flags = (calm, "gone=/gone.gguf", broken, loud)
        agent = Agent(balancer=(balancer.url,), assignment=ASSIGNMENT, adapter=flags)
        async with agent.running():
            peer = await balancer.peer()
            agent.channel.orders.put_nowait(ReportStatus(work=WORK))
            status = await peer.next()
            assert isinstance(status, Status) and status.model is not None
            assert status.model.adapters == ("calm", "loud")
            loaded = await agent.reported.get()
            assert isinstance(loaded, Loaded)
            assert loaded.left_out == ("gone", "broken")
            gone, torn = loaded.issues
            assert (
                gone.message
                == "adapter `gone`: /gone.gguf cannot be read: No such file or directory"
            )
            assert torn.message.startswith("adapter `broken`: ")
            assert sorted(path.stem for path in agent.worker.adapters.values()) == ["calm", "loud"]

    async def test_an_operators_own_adapter_that_cannot_be_had_ends_the_start(self) -> None:
        agent = Agent(adapter=("gone=/gone.gguf",))
        with pytest.raises(StartupError, match=r"adapter `gone`: .*cannot be read"):
            await agent.run()
        assert agent.worker.is_stopped

    @staticmethod
    def adapter(folder: Path, name: str) -> str:
        (folder / f"{name}.gguf").write_text(name)
        return f"{name}={folder / name}.gguf"

    async def test_a_template_is_never_a_path(self, balancer: FakeBalancer, tmp_path: Path) -> None:
        file = tmp_path / "secret"
        file.write_text("secret")
        assignment = replace(ASSIGNMENT, chat_template=str(file))
        agent = Agent(assignment=assignment, balancer=(balancer.url,), drain_timeout=0.01)
        async with agent.running():
            peer = await balancer.peer()
            messages = (ChatMessage(role="user", content="hi"),)
            request = GenerateRequest(messages=messages)
            await peer.say(Start(id=RequestId("r"), request=request))
            prompt = (await agent.worker.added.get()).prompt
            assert bytes(t for t in prompt.tokens if t < 256).decode() == str(file)

    async def test_stops_within_the_time_it_is_given(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,))
        async with agent.running() as task:
            peer = await balancer.peer()
            await peer.start("r")
            await agent.worker.added.get()
            agent.channel.drain_timeout = 0.01
            agent.shutdown.request("the supervisor asks for it")
            assert isinstance(await peer.next(), Status)
            [refused] = (await peer.output()).items
            assert isinstance(refused, Refused) and refused.error.code == "shutting_down"
            await soon(task)

    async def test_takes_new_requests_again_if_it_is_told_before_it_has_finished(
        self, balancer: FakeBalancer
    ) -> None:
        agent = Agent(balancer=(balancer.url,))
        async with agent.running() as task:
            old = await balancer.peer()
            await old.start("r")
            first = await agent.worker.added.get()
            agent.shutdown.request("the supervisor asks for it")
            assert isinstance(await old.next(), Status)
            agent.channel.dials.put_nowait(Dial(takes_over=True, issues=(CRASHED,)))
            new = await balancer.peers.get()
            hello = await new.next()
            assert isinstance(hello, Hello) and hello.takes_over
            await new.say(WELCOME)
            status = await new.next()
            assert isinstance(status, Status)
            assert (status.accepting, status.issues) == (True, (CRASHED,))
            await new.start("s")
            second = await agent.worker.added.get()
            agent.worker.say(first, "the end", is_last=True)
            assert isinstance((await old.output()).items[-1], Ended)
            agent.worker.say(second, "the end", is_last=True)
            assert isinstance((await new.output()).items[-1], Ended)
            assert agent.reports.count(Ready()) == 2
            assert not task.done()
            agent.shutdown.request("the supervisor asks for it")
            await soon(task)


class TestItCannotStart:
    async def test_with_a_model_that_cannot_be_loaded(self) -> None:
        agent = Agent()
        agent.worker.error = ModelError("m.gguf: not a GGUF file")
        with pytest.raises(StartupError, match=r"^m.gguf: not a GGUF file$"):
            await agent.run()

    @pytest.mark.parametrize(
        ("template", "wrong"),
        [
            ("{% if %}", "^the template in --chat-template does not compile: line 1"),
            ("missing.jinja", "^--chat-template missing.jinja: No such file"),
        ],
    )
    async def test_with_a_broken_template_of_the_operators(self, template: str, wrong: str) -> None:
        agent = Agent(chat_template=template)
        with pytest.raises(StartupError, match=wrong):
            await agent.run()
        assert agent.worker.is_stopped

    async def test_with_a_cache_folder_that_cannot_be_one(self, tmp_path: Path) -> None:
        model, folder = tmp_path / "m.gguf", tmp_path / "file" / "folder"
        model.write_bytes(b"GGUF")
        folder.parent.write_bytes(b"")
        agent = Agent(model=model, cache_dir=folder)
        with pytest.raises(StartupError, match=r"--cache-dir .*folder cannot be used"):
            await agent.run()
        assert agent.worker.is_stopped
        assert agent.reports == []

    async def test_where_its_balancer_speaks_another_version(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,))
        async with agent.running() as task:
            for _ in range(OLDEST_PROTOCOL, PROTOCOL_VERSION + 1):
                peer = await balancer.peers.get()
                await peer.say(Reject(reason="version 1 is too old", retry=False))
            await ends_soon(task)
            error = task.exception()
        assert error is not None
        assert "version 1 is too old" in one_startup_error(error)


class TestShutdown:
    async def test_lets_what_runs_finish(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,))
        async with agent.running() as task:
            peer = await balancer.peer()
            await peer.start("r")
            sequence = await agent.worker.added.get()
            agent.shutdown.request("SIGTERM")
            status = await peer.next()
            assert isinstance(status, Status) and not status.accepting
            agent.worker.say(sequence, "the end", is_last=True)
            assert isinstance((await peer.output()).items[-1], Ended)
            await soon(task)

    async def test_ends_the_rest_at_the_deadline(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,), drain_timeout=0.01)
        async with agent.running() as task:
            peer = await balancer.peer()
            await peer.start("r")
            await agent.worker.added.get()
            agent.shutdown.request("SIGTERM")
            assert isinstance(await peer.next(), Status)
            [refused] = (await peer.output()).items
            assert isinstance(refused, Refused)
            assert refused.error.code == "shutting_down"
            await soon(task)

    async def test_without_a_balancer(self) -> None:
        async with FakeBalancer.open() as balancer:
            url = balancer.url
        agent = Agent(balancer=(url,))
        async with agent.running() as task:
            agent.shutdown.request("SIGTERM")
            await soon(task)

    async def test_while_the_model_is_loading(self, balancer: FakeBalancer) -> None:
        worker = SlowWorker(MODEL)
        agent = Agent(worker, balancer=(balancer.url,))
        async with agent.running() as task:
            await asyncio.to_thread(worker.is_loading.wait)
            agent.shutdown.request("SIGTERM")
            worker.may_go_on.set()
            await soon(task)
        assert balancer.paths == []


class TestCrash:
    async def test_it_leaves_its_balancers_so_that_requests_move_and_says_why(
        self, balancer: FakeBalancer
    ) -> None:
        async with FakeBalancer.open() as other:
            agent = Agent(balancer=(balancer.url, other.url))
            async with agent.running() as task:
                peers = [await balancer.peer(), await other.peer()]
                for peer in peers:
                    await peer.start("r")
                    await agent.worker.added.get()
                await asyncio.to_thread(agent.worker.crash, ValueError("out of\norder"))
                for peer in peers:
                    await soon(peer.socket.wait_closed())
                    assert "ValueError" in str(peer.socket.close_reason)
                    with pytest.raises(ConnectionClosed):
                        await peer.output()
                await ends_soon(task)
                error = task.exception()
        assert error is not None
        assert "ValueError: out of order" in one_startup_error(error)

    async def test_during_a_drain(self, balancer: FakeBalancer) -> None:
        agent = Agent(balancer=(balancer.url,))
        async with agent.running() as task:
            peer = await balancer.peer()
            await peer.start("r")
            await agent.worker.added.get()
            agent.shutdown.request("SIGTERM")
            assert isinstance(await peer.next(), Status)
            agent.worker.crash(ValueError("x"))
            await soon(peer.socket.wait_closed())
            await ends_soon(task)
            assert isinstance(task.exception(), StartupError)


ANY_PORT = Address("127.0.0.1", 0)


class LendingAgent(Agent):
    """Has a model file, and a worker that has computed something."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        file = folder / "m.gguf"
        file.write_bytes(b"GGUF")
        worker = FakeWorker(file)
        worker.model = replace(byte_model(), cell_bytes=64)
        super().__init__(worker, model=file, **settings)


async def test_a_prefix_goes_from_agent_to_agent_by_a_ticket(
    balancer: FakeBalancer, tmp_path: Path
) -> None:
    both: dict[str, Any] = {"balancer": (balancer.url,), "peer_addr": ANY_PORT}
    both["drain_timeout"] = 0.01
    lender, fetcher = LendingAgent(tmp_path, **both), LendingAgent(tmp_path, **both)
    async with lender.running():
        lending = await balancer.peers.get()
        hello = await lending.next()
        assert isinstance(hello, Hello) and hello.peer is not None
        await lending.say(WELCOME)
        lender.worker.kept = whole((BOS, ord("a")))
        async with fetcher.running():
            fetching = await balancer.peer()
            await lending.say(Lend(ticket="t", seconds=30.0))
            source = PrefixSource(address=hello.peer.address, ticket="t", seconds=30.0)
            request = GenerateRequest(prompt="abc")
            await fetching.say(Start(id=RequestId("r"), request=request, fetch=source))
            sequence = await fetcher.worker.added.get()
            assert sequence.stored == lender.worker.kept


async def test_an_address_that_is_taken_ends_the_agent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        agent = LendingAgent(tmp_path, peer_addr=Address(*taken.getsockname()))
        with pytest.raises(StartupError, match=r"--peer-addr: cannot listen on 127\.0\.0\.1:"):
            await agent.run()


async def test_a_model_without_prefixes_is_served_all_the_same(
    balancer: FakeBalancer, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(balancer=(balancer.url,), peer_addr=ANY_PORT, drain_timeout=0.01)
    async with agent.running():
        await (await balancer.peer()).start("r")
        await agent.worker.added.get()
    assert "--peer-addr has no effect: prefixes of this model cannot be exported" in caplog.text
