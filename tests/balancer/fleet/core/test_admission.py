"""Who is let in, as what, and what counts against a caller's limits."""

from dataclasses import replace

import pytest

from arriero.balancer.access.identity import NO_LIMITS, CallerLimits, PriorityClass
from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.core.admission import bounded, model_for, priority_within
from arriero.balancer.fleet.core.limiter import joined, share_of
from arriero.balancer.fleet.decisions import Decision, Finish, Refuse, Send
from arriero.balancer.fleet.footprint import OVERHEAD
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.view import Level
from arriero.shared.errors import (
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    QueueFull,
    RateLimited,
    RequestError,
    RequestTooLarge,
)
from arriero.shared.inference import (
    ChatMessage,
    GenerateRequest,
    ImagePart,
    ImageUrl,
    RequestId,
    priority_class_of,
)
from arriero.shared.inference.adapters import AdapterChoice
from arriero.shared.messages import PromptRead, Start
from arriero.shared.queries import CountTokens, Embed, Tokenize
from arriero.shared.reports.model_info import Upstream
from tests.balancer.fleet.builders import ended, forwarding, hello, piece, request, seen
from tests.balancer.fleet.core.scene import LIMITS, NO_HEARTBEATS, A, B, Scene

EMBED = QueryRequest(kind="embed", parts=(Embed(inputs=("1234",)),))
TOKENIZE = QueryRequest(kind="text", parts=(Tokenize(text="x"),))


class Limited(Scene):
    """A fleet of one agent with two slots, and callers with limits."""

    def __init__(self, *, max_buffered: int = 8, **anonymous: object) -> None:
        limits = CallerLimits(**anonymous)  # type: ignore[arg-type]
        super().__init__(
            replace(NO_HEARTBEATS, max_buffered_requests=max_buffered, anonymous=limits)
        )
        self.join(A, hello(slots=2))

    def send(
        self, id: str, wanted: GenerateRequest | None = None, caller: Caller = ANONYMOUS
    ) -> list[Decision]:
        wanted = request() if wanted is None else wanted
        return self._checked(
            self.fleet.request_arrived(RequestId(id), wanted, self.now, caller=caller)
        )

    def ask(self, id: str, query: QueryRequest) -> list[Decision]:
        return self._checked(self.fleet.query_arrived(RequestId(id), query, self.now))

    def tokens(self) -> Level | None:
        return seen(self.fleet, self.now).standing(ANONYMOUS).tokens


def refusal(decisions: list[Decision]) -> RequestError | None:
    return next((each.error for each in decisions if isinstance(each, Refuse)), None)


def started(decisions: list[Decision]) -> GenerateRequest:
    [message] = [each.message for each in decisions if isinstance(each, Send)]
    assert isinstance(message, Start)
    return message.request


def test_requests_of_a_minute_are_refused_and_recorded() -> None:
    scene = Limited(requests_per_minute=1)
    assert refusal(scene.send("a")) is None
    decisions = scene.send("b")
    assert isinstance(refusal(decisions), RateLimited)
    [finish] = [each for each in decisions if isinstance(each, Finish)]
    assert finish.ending.code == "rate_limited"
    scene.now += 60
    assert refusal(scene.send("c")) is None


def test_what_was_refused_for_another_reason_does_not_count() -> None:
    scene = Limited(requests_per_minute=3, max_buffered=0)
    for id in ("a", "b"):
        assert refusal(scene.send(id)) is None
    assert isinstance(refusal(scene.send("c")), QueueFull)
    assert isinstance(refusal(scene.send("d", request("unknown"))), ModelNotFound)
    scene.say(A, ended("a"))
    assert refusal(scene.send("e")) is None
    assert isinstance(refusal(scene.send("f")), RateLimited)


def test_tokens_are_given_back_at_every_kind_of_end() -> None:
    scene = Limited(tokens_per_minute=1000)
    wanted = replace(request(), max_tokens=100)
    reserved = 1 + 100
    scene.send("done", wanted)
    assert scene.tokens() == Level(1000, 1000 - reserved, 0.0)
    scene.say(A, ended("done"))
    assert scene.tokens() == Level(1000, 995, 60.0)
    scene.send("gone", wanted)
    scene.say(A, PromptRead(id=RequestId("gone"), prompt_tokens=3, cached_tokens=0), piece("gone"))
    scene.close("gone")
    assert scene.tokens() == Level(1000, 991, 60.0)
    scene.send("lost", wanted)
    scene.send("waits", replace(wanted, model=None))
    scene.leave(A)
    scene.cancel("lost", "waits")
    assert scene.tokens() == Level(1000, 991, 60.0)


def test_queries_count_too() -> None:
    scene = Limited(requests_per_minute=1, tokens_per_minute=100)
    scene.leave(A)
    assert refusal(scene.ask("t", TOKENIZE)) is None
    assert refusal(scene.ask("q", EMBED)) is None
    assert scene.tokens() == Level(100, 99, 0.0)
    assert isinstance(refusal(scene.ask("r", EMBED)), RateLimited)
    assert refusal(scene.ask("u", TOKENIZE)) is None, "counting tokens is no request"
    scene.cancel("q")
    assert scene.tokens() == Level(100, 100, 0.0)


def test_one_caller_may_have_so_many_waiting() -> None:
    scene = Limited(max_queued=1)
    other = Caller(address="10.0.0.1")
    assert [refusal(scene.send(id)) for id in ("a", "b", "waits")] == [None] * 3
    assert isinstance(refusal(scene.send("d")), RateLimited)
    assert isinstance(refusal(scene.send("d")), RateLimited)
    assert refusal(scene.send("e", caller=other)) is None
    scene.say(A, ended("a"), ended("b"))
    assert refusal(scene.send("f")) is None, "both that waited run"


def test_queries_that_wait_count_among_those_waiting() -> None:
    scene = Limited(max_queued=1)
    scene.leave(A)
    assert refusal(scene.ask("q", EMBED)) is None
    assert isinstance(refusal(scene.send("a")), RateLimited)
    assert isinstance(refusal(scene.ask("r", EMBED)), RateLimited)


def test_requests_come_in_within_the_callers_limits() -> None:
    scene = Limited(max_tokens=10, priority="default")
    run = started(scene.send("a", replace(request(), priority=50)))
    assert (run.max_tokens, run.priority) == (10, 0)
    error = refusal(scene.send("b", replace(request(), max_tokens=11)))
    assert isinstance(error, InvalidRequest)


def test_other_models_do_not_exist() -> None:
    scene = Limited(models=("llama",))
    assert started(scene.send("a")).model == "llama"
    assert isinstance(refusal(scene.send("b", request("qwen"))), ModelNotFound)
    error = refusal(scene.ask("q", replace(TOKENIZE, model="qwen")))
    assert isinstance(error, ModelNotFound)


def test_a_context_bounds_what_an_answer_may_take() -> None:
    scene = Limited(tokens_per_minute=5000)
    assert refusal(scene.send("a", replace(request(), max_tokens=32_000))) is None
    level = scene.tokens()
    assert level is not None
    assert level.remaining == 5000 - 2048


@pytest.mark.parametrize("caller", [Caller(), Caller("alice", limits=CallerLimits(max_queued=5))])
def test_while_draining_nobody_comes_in(caller: Caller) -> None:
    scene = Limited(requests_per_minute=1)
    scene._checked(scene.fleet.drain(scene.now, scene.now + 10))
    error = refusal(scene.send("a", caller=caller))
    assert error is not None
    assert error.code == "shutting_down"
    assert refusal(scene.ask("q", TOKENIZE)) is not None


def test_without_limits_nothing_is_counted() -> None:
    scene = Scene(LIMITS)
    scene.join(A, hello())
    scene.open("a")
    assert seen(scene.fleet).num_limited_callers == 0


def test_a_caller_with_models_sees_those_and_no_others_names() -> None:
    fleet = Limited()
    caller = Caller("ana", limits=CallerLimits(models=("gone", "llama")))
    only = Caller("ben", limits=CallerLimits(models=("gone",)))
    assert [each.info.name for each in seen(fleet.fleet).models(caller)] == ["llama"]
    assert seen(fleet.fleet).models(only) == ()
    assert seen(fleet.fleet).model("llama", only) is None
    assert seen(fleet.fleet).model("llama", caller) == seen(fleet.fleet).model("llama")
    assert seen(fleet.fleet).model_name_for("generate", only) == "gone"
    error = refusal(fleet.send("r", request("gone"), only))
    assert isinstance(error, ModelNotFound) and "llama" not in error.message


def test_who_says_no_priority_has_the_class_of_its_key() -> None:
    scene = Limited()
    caller = Caller(name="ci", limits=CallerLimits(default_priority="batch"))
    said, unsaid = request(priority=1), replace(request(), priority=None)
    for id, wanted, kind in (("unsaid", unsaid, "batch"), ("said", said, "interactive")):
        told = seen(scene.fleet).priority(wanted, caller)
        assert started(scene.send(id, wanted, caller)).priority == told
        view = seen(scene.fleet, scene.now).request(RequestId(id))
        assert view is not None
        assert priority_class_of(view.priority) == kind
    assert seen(scene.fleet).priority(unsaid, ANONYMOUS) is None


def test_what_no_upstream_server_can_do_is_refused_by_name() -> None:
    scene = Scene(NO_HEARTBEATS)
    said = hello()
    assert said.model is not None
    upstream = Upstream(kind="ollama", address="h:1", abilities=("prompt",))
    scene.join(A, replace(said, model=replace(said.model, upstream=upstream)))
    scored = replace(request(), logprobs=True)
    decisions = scene.fleet.request_arrived(RequestId("1"), scored, scene.now, caller=ANONYMOUS)
    error = refusal(decisions)
    assert error is not None
    assert (error.code, error.field) == ("not_supported", "logprobs")
    error = refusal(scene.fleet.query_arrived(RequestId("2"), TOKENIZE, scene.now))
    assert error is not None
    assert error.code == "not_supported"


def test_what_no_agent_is_given_is_refused_whatever_other_models_could_do() -> None:
    scene = Scene(NO_HEARTBEATS)
    scene.join(A, forwarding("a", abilities=("prompt",)))
    vectors = hello("b", model="bert")
    assert vectors.model is not None
    scene.join(B, replace(vectors, model=replace(vectors.model, tasks=("embed",))))
    scored = replace(request(), model=None, logprobs=True)
    told = scene.fleet.request_arrived(RequestId("1"), scored, scene.now, caller=ANONYMOUS)
    error = refusal(told)
    assert error is not None
    assert (error.code, error.field) == ("not_supported", "logprobs")


URL = ImageUrl(url="data:image/png;base64,AA==")
SEEN = ChatMessage(role="user", content=(ImagePart(type="image_url", image_url=URL),))
COUNT = CountTokens(request=GenerateRequest(messages=(SEEN,)))


def test_pictures_that_no_agent_of_the_model_reads_are_refused_by_name() -> None:
    scene = Scene(NO_HEARTBEATS)
    scene.join(A, hello())
    asked = replace(request(), prompt=None, messages=(SEEN,))
    for model in (asked.model, None):
        named = replace(asked, model=model)
        told = scene.fleet.request_arrived(RequestId("1"), named, scene.now, caller=ANONYMOUS)
        error = refusal(told)
        assert isinstance(error, InvalidRequest)
        assert error.field == "messages[0].content[0].image_url.url"
        counted = QueryRequest(kind="text", parts=(COUNT,), model=model)
        error = refusal(scene.fleet.query_arrived(RequestId("2"), counted, scene.now))
        assert isinstance(error, InvalidRequest)
        assert error.field == "messages[0].content[0].image_url.url"


def adapted(scene: Limited) -> None:
    """Another agent has the model with an adapter."""
    newcomer = hello("adapted", slots=2)
    assert newcomer.model is not None
    scene.join(B, replace(newcomer, model=replace(newcomer.model, adapters=("loud", "calm"))))


def test_a_request_with_an_adapter_goes_where_that_is() -> None:
    scene = Limited()
    adapted(scene)
    base = hello().model
    assert base is not None
    for number, wanted in enumerate(
        (
            request(model=f"{base.name}:calm"),
            replace(request(model=base.name), adapters=(AdapterChoice(name="loud"),)),
        )
    ):
        (sent,) = [each for each in scene.send(str(number), wanted) if isinstance(each, Send)]
        assert sent.link == B


def test_an_adapter_that_nobody_has_or_that_a_key_may_not_use_is_refused() -> None:
    base = hello().model
    assert base is not None
    loud = replace(request(model=base.name), adapters=(AdapterChoice(name="loud"),))
    scene = Limited()
    adapted(scene)
    gone = refusal(scene.send("a", replace(loud, adapters=(AdapterChoice(name="gone"),))))
    assert isinstance(gone, InvalidRequest)
    assert gone.field == "adapters[0].name"
    limited = Limited(models=(base.name,))
    adapted(limited)
    assert isinstance(refusal(limited.send("a", loud)), ModelNotFound)


def test_an_adapter_changes_no_tokens() -> None:
    scene = Limited()
    adapted(scene)
    base = hello().model
    assert base is not None
    assert refusal(scene.ask("a", replace(TOKENIZE, model=f"{base.name}:loud"))) is None
    assert isinstance(
        refusal(scene.ask("b", replace(EMBED, model=f"{base.name}:loud"))), InvalidRequest
    )


def test_no_adapters_is_the_model_alone() -> None:
    scene = Limited()
    adapted(scene)
    wanted = replace(request(model="llama:loud"), adapters=())
    taken = started(scene.send("a", wanted))
    assert (taken.model, taken.adapters) == ("llama", None)


REQUEST = GenerateRequest(prompt="Once")
ALIASES: dict[str | None, str] = {"gpt-4o-mini": "llama"}


def resolve(name: str | None) -> str | None:
    return ALIASES.get(name, name)


def test_defaults_fill_what_is_left_open() -> None:
    own = CallerLimits(requests_per_minute=5, max_tokens=10)
    defaults = CallerLimits(requests_per_minute=1, tokens_per_minute=100, priority="batch")
    assert joined(own, defaults) == CallerLimits(
        requests_per_minute=5, max_tokens=10, tokens_per_minute=100, priority="batch"
    )
    assert joined(NO_LIMITS, defaults) is defaults
    assert joined(own, NO_LIMITS) is own


def test_any_model_without_limits() -> None:
    assert model_for("gpt-4o-mini", NO_LIMITS, resolve) == "llama"
    assert model_for(None, NO_LIMITS, resolve) is None


@pytest.mark.parametrize("models", [("llama",), ("gpt-4o-mini",), ("qwen", "llama")])
def test_a_model_by_its_name_or_an_alias(models: tuple[str, ...]) -> None:
    limits = CallerLimits(models=models)
    assert model_for("llama", limits, resolve) == "llama"
    assert model_for("gpt-4o-mini", limits, resolve) == "llama"
    assert isinstance(model_for("other", limits, resolve), ModelNotFound)


def test_a_model_need_not_be_named_where_there_is_one() -> None:
    assert model_for(None, CallerLimits(models=("gpt-4o-mini",)), resolve) == "llama"
    error = model_for(None, CallerLimits(models=("qwen", "llama")), resolve)
    assert isinstance(error, InvalidRequest)
    assert error.field == "model"
    assert "`qwen`, `llama`" in error.message


def test_the_longest_answer() -> None:
    limits = CallerLimits(max_tokens=10)
    assert bounded(REQUEST, limits) == replace(REQUEST, max_tokens=10)
    short = replace(REQUEST, max_tokens=10)
    assert bounded(short, limits) is short
    error = bounded(replace(REQUEST, max_tokens=11), limits)
    assert isinstance(error, InvalidRequest)
    assert error.field == "max_tokens"
    assert "at most 10" in error.message


@pytest.mark.parametrize(
    ("highest", "asked", "given"),
    [("interactive", 100, 100), ("default", 5, 0), ("default", -5, -5), ("batch", 0, -1)],
)
def test_a_higher_priority_is_lowered(highest: PriorityClass, asked: int, given: int) -> None:
    within = bounded(replace(REQUEST, priority=asked), CallerLimits(priority=highest))
    assert within == replace(REQUEST, priority=given)


@pytest.mark.parametrize("num", range(1, 8))
@pytest.mark.parametrize("limit", [1, 5, 60, 100_000])
def test_shares_add_up_to_the_limit_and_less_than_one_more_each(num: int, limit: int) -> None:
    whole = CallerLimits(requests_per_minute=limit, max_concurrent=limit, max_tokens=limit)
    share = share_of(whole, num)
    assert share.requests_per_minute is not None and share.max_concurrent is not None
    assert limit <= num * share.requests_per_minute < limit + num
    assert limit <= num * share.max_concurrent < limit + num
    assert (share.tokens_per_minute, share.max_queued) == (None, None)
    assert share.max_tokens == limit, "of one request, wherever it goes"


@pytest.mark.parametrize(
    ("asked", "default", "highest", "given"),
    [
        (None, None, "interactive", None),
        (None, None, "default", None),
        (None, None, "batch", -1),
        (None, "batch", "interactive", -1),
        (None, "interactive", "interactive", 1),
        (None, "interactive", "default", 0),
        (0, "batch", "interactive", 0),
        (5, "batch", "interactive", 5),
        (-5, "interactive", "interactive", -5),
    ],
)
def test_who_says_no_priority_has_the_callers_default(
    asked: int | None, default: PriorityClass | None, highest: PriorityClass, given: int | None
) -> None:
    limits = CallerLimits(priority=highest, default_priority=default)
    assert priority_within(asked, limits) == given
    assert bounded(replace(REQUEST, priority=asked), limits) == replace(REQUEST, priority=given)


def test_a_default_of_all_keys_is_for_those_without_their_own() -> None:
    defaults = CallerLimits(default_priority="batch")
    assert joined(CallerLimits(max_queued=1), defaults).default_priority == "batch"
    own = CallerLimits(default_priority="interactive")
    assert joined(own, defaults).default_priority == "interactive"


class TestMemory:
    """What requests take while they wait or run."""

    SIZE = 2**20
    LARGE = GenerateRequest(prompt="x" * SIZE)
    ALICE, BOB = Caller("alice"), Caller("bob")

    def scene(self, num: int) -> Scene:
        """One slot, and memory for about `num` large requests."""
        memory = num * (self.SIZE + 2 * OVERHEAD)
        scene = Scene(replace(NO_HEARTBEATS, max_buffered_requests=100, request_memory=memory))
        scene.join(A, hello(slots=1))
        return scene

    def send(
        self, scene: Scene, id: str, caller: Caller, wanted: GenerateRequest = LARGE
    ) -> RequestError | None:
        decisions = scene.fleet.request_arrived(RequestId(id), wanted, scene.now, caller=caller)
        for each in decisions:
            if isinstance(each, Finish):
                scene.fleet.settle(each.ending, scene.now)
        scene.fleet.check_integrity()
        return next((each.error for each in decisions if isinstance(each, Refuse)), None)

    def test_a_caller_alone_takes_half_and_leaves_room_for_another(self) -> None:
        scene = self.scene(8)
        assert [self.send(scene, f"a{n}", self.ALICE) for n in range(4)] == [None] * 4
        error = self.send(scene, "a4", self.ALICE)
        assert isinstance(error, Overloaded)
        assert error.retry_after is not None
        assert self.send(scene, "b0", self.BOB) is None
        assert self.send(scene, "small", self.BOB, request()) is None
        assert scene.fleet.admission.memory.num_refused["share"] == 1

    def test_a_request_takes_it_until_it_ends(self) -> None:
        scene = self.scene(4)
        memory = scene.fleet.admission.memory
        assert self.send(scene, "a0", self.ALICE) is None
        assert self.send(scene, "a1", self.ALICE) is None
        assert self.send(scene, "a2", self.ALICE) is not None
        for each in scene.fleet.close(RequestId("a0"), scene.now):  # it ran; a1 runs now
            if isinstance(each, Finish):
                scene.fleet.settle(each.ending, scene.now)
        assert self.SIZE < memory.total < 2 * self.SIZE
        assert self.send(scene, "a3", self.ALICE) is None

    def test_what_a_full_queue_refuses_takes_none(self) -> None:
        scene = Scene(replace(NO_HEARTBEATS, max_buffered_requests=0))
        assert isinstance(self.send(scene, "a0", self.ALICE), QueueFull | ModelNotFound)
        assert scene.fleet.admission.memory.total == 0

    def test_what_needs_more_than_one_caller_may_have_is_too_large(self) -> None:
        error = self.send(self.scene(1), "a0", self.ALICE)
        assert isinstance(error, RequestTooLarge)

    def test_queries_take_memory_too(self) -> None:
        scene = self.scene(4)
        query = QueryRequest(kind="text", parts=(Tokenize(text="x" * self.SIZE),))
        scene.fleet.query_arrived(RequestId("q"), query, scene.now, caller=self.ALICE)
        assert scene.fleet.admission.memory.held(self.ALICE.account) > self.SIZE
