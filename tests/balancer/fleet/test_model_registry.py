from dataclasses import replace

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.model_registry import (
    MAX_REMEMBERED,
    SERVER_PAUSE,
    KnownModel,
    LoadFailure,
    ModelRegistry,
    PromptRoom,
    Report,
    adapted,
    check_length,
    largest,
    room_of,
    unknown,
)
from arriero.shared.errors import (
    InvalidRequest,
    ModelFailed,
    ModelNotFound,
    NotSupported,
    PromptTooLong,
)
from arriero.shared.inference import ChatMessage, GenerateRequest, ImagePart, ImageUrl, PromptInput
from arriero.shared.inference.abilities import ABILITIES
from arriero.shared.messages import Issue
from arriero.shared.reports.model_info import ModelInfo, Task, Upstream
from tests.balancer.fleet.builders import model_info, request

LLAMA = replace(model_info("llama"), tasks=("generate", "embed"))
BERT = replace(model_info("bert"), tasks=("embed",))
A, B, C = LinkId(1), LinkId(2), LinkId(3)
MEMORY = 600.0
GONE = Issue(code="upstream_unreachable", message="the server is away", hint="start it")


class Scene:
    """A registry whose invariants are checked after each event."""

    def __init__(self, memory: float = MEMORY) -> None:
        self.registry = ModelRegistry(memory=memory)

    def serves(self, link: LinkId, model: ModelInfo | None, now: float = 0.0) -> None:
        abilities = ABILITIES if model is None else model.abilities
        self.registry.agent_changed(link, model, None, now, abilities=abilities)
        self.registry.check_integrity()

    def loses_its_server(self, link: LinkId, model: ModelInfo) -> None:
        self.registry.agent_changed(link, model, None, 0.0, abilities=model.abilities, failure=GONE)
        self.registry.check_integrity()

    def loads(self, link: LinkId, model: ModelInfo, now: float = 0.0) -> None:
        self.registry.agent_changed(link, None, model, now, abilities=model.abilities)
        self.registry.check_integrity()

    def leaves(self, link: LinkId, now: float = 0.0) -> None:
        self.registry.agent_left(link, now)
        self.registry.check_integrity()

    def passes(self, now: float) -> bool:
        has_forgotten = self.registry.due(now)
        self.registry.check_integrity()
        return has_forgotten

    @property
    def statuses(self) -> dict[str, str]:
        return {view.info.name: view.status for view in self.registry.views()}


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.serves(A, LLAMA)
    scene.serves(B, BERT)
    return scene


def test_with_nobody_here_nothing_is_refused() -> None:
    scene = Scene()
    assert scene.registry.refusal("rank", None) is None
    assert scene.registry.refusal("embed", "bert") is None
    scene.serves(A, None)
    assert scene.registry.refusal("rank", "bert") is None


def test_what_a_model_cannot_do(scene: Scene) -> None:
    registry = scene.registry
    assert registry.refusal("generate", "bert") == InvalidRequest(
        "the model `bert` cannot generate text", field="model"
    )
    assert registry.refusal("generate", "llama") is None
    assert registry.refusal("embed", "bert") is None
    assert registry.refusal(None, "bert") is None


def test_what_no_model_can_do(scene: Scene) -> None:
    assert scene.registry.refusal("embed", None) is None
    assert scene.registry.refusal(None, None) is None
    assert scene.registry.refusal("rank", None) == InvalidRequest(
        "no connected agent has a model that can rank documents", field="model"
    )


@pytest.mark.parametrize("task", ["embed", "generate", None])
def test_a_model_that_nobody_knows(scene: Scene, task: Task | None) -> None:
    error = scene.registry.refusal(task, "nobody")
    assert isinstance(error, ModelNotFound)
    assert error.message == "no agent serves the model `nobody`; known models: bert, llama"


def test_a_long_list_of_models_is_cut() -> None:
    scene = Scene()
    for number in range(12):
        scene.serves(LinkId(number), model_info(f"m{number:02}"))
    error = scene.registry.refusal(None, "x")
    assert error is not None
    assert error.message.endswith("m08, m09, …")


class TestMemory:
    def test_a_model_that_has_gone_is_known_for_a_while(self, scene: Scene) -> None:
        scene.leaves(B, now=100.0)
        assert scene.statuses == {"bert": "unloaded", "llama": "loaded"}
        assert scene.registry.refusal("embed", "bert") is None
        assert scene.registry.next_deadline() == 700.0
        assert not scene.passes(699.9)
        assert scene.passes(700.0)
        assert isinstance(scene.registry.refusal("embed", "bert"), ModelNotFound)
        assert scene.registry.next_deadline() is None

    def test_it_stays_when_another_agent_has_it(self, scene: Scene) -> None:
        scene.serves(C, BERT)
        scene.leaves(B)
        assert scene.registry.next_deadline() is None
        assert scene.statuses["bert"] == "loaded"

    def test_an_agent_with_another_model_leaves_the_old_one_known(self, scene: Scene) -> None:
        scene.serves(B, LLAMA, now=5.0)
        assert scene.statuses == {"bert": "unloaded", "llama": "loaded"}
        scene.serves(B, BERT, now=6.0)
        assert scene.registry.next_deadline() is None

    def test_what_it_could_do_is_remembered_even_with_nobody_here(self, scene: Scene) -> None:
        scene.leaves(A)
        scene.leaves(A)
        scene.leaves(B)
        assert scene.registry.refusal("embed", "bert") is None
        assert isinstance(scene.registry.refusal("generate", "bert"), InvalidRequest)
        assert scene.registry.refusal("generate", "yet-to-come") is None

    def test_without_memory_it_is_forgotten_at_once(self) -> None:
        scene = Scene(memory=0.0)
        scene.serves(A, LLAMA)
        scene.leaves(A)
        assert scene.statuses == {}

    def test_only_so_many_are_remembered_those_that_went_last(self) -> None:
        scene = Scene()
        for number in range(MAX_REMEMBERED + 2):
            info = model_info(f"m{number}")
            scene.registry.agent_changed(A, info, None, float(number), abilities=info.abilities)
        scene.leaves(A, 1e6)
        assert scene.registry.num_remembered == MAX_REMEMBERED
        assert scene.registry.get("m1") is None
        assert scene.registry.get("m2") is not None


class TestLoading:
    def test_a_model_that_is_being_loaded_is_known(self) -> None:
        scene = Scene()
        scene.loads(A, LLAMA)
        assert scene.statuses == {"llama": "loading"}
        assert scene.registry.refusal("generate", "llama") is None
        assert isinstance(scene.registry.refusal("generate", "x"), ModelNotFound)
        scene.serves(A, LLAMA)
        assert scene.statuses == {"llama": "loaded"}

    def test_one_agent_that_serves_it_is_enough(self, scene: Scene) -> None:
        scene.loads(C, LLAMA)
        assert scene.statuses["llama"] == "loaded"


class TestNameOfAnswers:
    def test_the_first_that_can_do_it(self, scene: Scene) -> None:
        assert scene.registry.name_for("generate") == "llama"
        assert scene.registry.name_for("embed") == "bert"
        assert scene.registry.name_for("rank") == ""

    def test_rather_one_that_is_loaded(self, scene: Scene) -> None:
        scene.loads(C, model_info("alpaca"))
        assert scene.registry.name_for("generate") == "llama"
        scene.leaves(A)
        assert scene.registry.name_for("generate") == "alpaca"
        scene.leaves(C)
        assert scene.registry.name_for("generate") == "alpaca"


class TestLength:
    def prompt(self, length: int, model: str | None = None) -> GenerateRequest:
        return replace(request(model), prompt=(1,) * length)

    def test_it_is_measured_against_the_model_that_was_asked_for(self, scene: Scene) -> None:
        scene.serves(C, replace(model_info("large"), context_size=100_000))
        too_long = scene.registry.too_long
        assert isinstance(too_long(self.prompt(2048, "llama")), PromptTooLong)
        assert too_long(self.prompt(2047, "llama")) is None
        assert too_long(self.prompt(2048, "large")) is None
        assert too_long(self.prompt(2048)) is None
        assert isinstance(too_long(self.prompt(100_000)), PromptTooLong)

    def test_a_larger_one_that_is_only_remembered_counts(self, scene: Scene) -> None:
        scene.serves(C, replace(LLAMA, context_size=4096))
        scene.leaves(C)
        assert isinstance(scene.registry.too_long(self.prompt(3000)), PromptTooLong)
        scene.leaves(A)
        scene.loads(B, replace(LLAMA, context_size=4096))
        assert scene.registry.too_long(self.prompt(3000)) is None

    def test_nothing_is_too_long_for_what_nobody_knows(self) -> None:
        assert Scene().registry.too_long(self.prompt(10**6)) is None
        assert Scene().registry.too_long(self.prompt(10**6, "x")) is None


def test_agents_of_a_known_model_cost_no_new_listing(
    scene: Scene,
) -> None:
    before = scene.registry.views()
    for number in range(10, 20):
        scene.serves(LinkId(number), LLAMA)
        scene.leaves(LinkId(number))
    assert scene.registry.views() is before
    scene.serves(C, replace(LLAMA, context_size=1))
    assert scene.registry.views() is not before


def test_models_from_before_a_restart_are_waited_for() -> None:
    """Agents dial again one after the other; that of another model may be the first."""
    scene = Scene()
    scene.registry.restored(["llama"], now=0.0)
    scene.serves(B, BERT, now=1.0)
    assert scene.registry.refusal("generate", "llama") is None
    assert isinstance(scene.registry.refusal("generate", "other"), ModelNotFound)
    assert scene.registry.next_deadline() == MEMORY
    assert scene.passes(MEMORY)
    assert isinstance(scene.registry.refusal("generate", "llama"), ModelNotFound)
    assert scene.registry.next_deadline() is None


def test_a_model_from_before_a_restart_that_came_back_is_one_like_others() -> None:
    scene = Scene()
    scene.registry.restored(["llama"], now=0.0)
    scene.serves(A, LLAMA, now=1.0)
    assert isinstance(scene.registry.refusal("rank", "llama"), InvalidRequest)
    assert scene.passes(MEMORY)
    assert scene.registry.refusal("generate", "llama") is None


def test_nothing_is_restored_where_nothing_is_remembered() -> None:
    scene = Scene(memory=0.0)
    scene.registry.restored(["llama"], now=0.0)
    scene.serves(B, BERT)
    assert isinstance(scene.registry.refusal("generate", "llama"), ModelNotFound)
    assert scene.registry.next_deadline() is None


SEEING = replace(LLAMA, tasks=("generate", "vision"))


def test_pictures_are_for_models_of_which_an_agent_reads_them() -> None:
    scene = Scene()
    scene.serves(B, LLAMA)
    error = scene.registry.refusal("vision", "llama", field="messages[0].content")
    assert isinstance(error, InvalidRequest)
    assert error.field == "messages[0].content"
    assert error.message.startswith("`messages[0].content`: the model `llama` cannot read pictures")
    assert "--projector" in error.message
    assert scene.registry.refusal("vision", None) is not None
    scene.serves(A, SEEING)
    for name in ("llama", None):
        assert scene.registry.refusal("vision", name) is None
    assert scene.registry.name_for("vision") == "llama"
    [view] = scene.registry.views()
    assert view.info.tasks == ("generate", "embed", "vision"), "whichever agent was here first"


def test_one_agent_has_to_read_the_pictures_and_do_the_rest() -> None:
    scene = Scene()
    scene.serves(A, replace(forwarded("messages", "vision"), tasks=("generate", "vision")))
    scene.serves(B, LLAMA)
    url = ImageUrl(url="data:image/png;base64,AA==")
    said = ChatMessage(role="user", content=(ImagePart(type="image_url", image_url=url),))
    asked = GenerateRequest(messages=(said,), model="llama")
    assert scene.registry.unable(asked) is None
    assert scene.registry.unable(replace(asked, logprobs=True)) is not None
    assert scene.registry.can_tokenize("llama")
    assert not scene.registry.can_tokenize("llama", also=frozenset(("vision",)))


def forwarded(*abilities: str) -> ModelInfo:
    upstream = Upstream(kind="ollama", address="h:1", abilities=abilities)
    return replace(LLAMA, upstream=upstream)


SCORED = GenerateRequest(prompt="a", model="llama", logprobs=True)


def test_what_no_agent_of_the_model_can_do_is_refused_by_name(scene: Scene) -> None:
    registry = scene.registry
    assert registry.unable(SCORED) is None
    assert registry.can_tokenize("llama")
    scene.serves(A, forwarded("prompt", "from_the_future"))
    error = registry.unable(SCORED)
    assert error == NotSupported("`logprobs`: no agent of the model can serve it", field="logprobs")
    assert registry.unable(replace(SCORED, logprobs=False)) is None
    assert not registry.can_tokenize("llama")
    scene.serves(C, LLAMA)
    assert registry.unable(SCORED) is None
    assert registry.can_tokenize("llama")


def test_a_conversation_is_not_for_models_without_a_template() -> None:
    scene = Scene()
    scene.serves(A, replace(LLAMA, chats=False))
    chat = GenerateRequest(messages=(ChatMessage(role="user", content="hi"),))
    error = scene.registry.unable(chat)
    assert error is not None and "the model has no chat template" in error.message
    assert scene.registry.unable(SCORED) is None
    scene.serves(B, replace(LLAMA, name="other"))
    assert scene.registry.unable(chat) is None
    assert scene.registry.unable(replace(chat, model="llama")) is not None


def test_one_agent_has_to_be_able_to_do_all_of_it() -> None:
    scene = Scene()
    scene.serves(A, forwarded("prompt", "logprobs"))
    scene.serves(B, forwarded("prompt", "top_k"))
    assert scene.registry.unable(SCORED) is None
    assert scene.registry.unable(replace(SCORED, top_k=4)) is not None
    assert scene.registry.unable(replace(SCORED, model=None)) is None
    assert scene.registry.unable(replace(SCORED, model="other")) is None


def test_who_names_no_model_is_refused_what_nobody_can_do() -> None:
    scene = Scene()
    assert scene.registry.unable(replace(SCORED, model=None)) is None
    scene.serves(A, forwarded("prompt"))
    assert scene.registry.unable(replace(SCORED, model=None)) is not None
    assert not scene.registry.can_tokenize(None)
    scene.serves(B, BERT)
    assert scene.registry.can_tokenize(None)
    assert scene.registry.unable(replace(SCORED, model=None)) is not None


def test_an_agent_may_be_given_less_than_its_model_can_do() -> None:
    scene = Scene()
    less = LLAMA.abilities - {"logprobs"}
    scene.registry.agent_changed(A, LLAMA, None, 0.0, abilities=less)
    assert scene.registry.unable(SCORED) is not None
    assert scene.registry.unable(replace(SCORED, logprobs=False)) is None


def test_a_model_under_an_adapter_is_a_model_that_generates(scene: Scene) -> None:
    scene.serves(C, replace(LLAMA, adapters=("loud", "calm")))
    assert {"llama:loud", "llama:calm"} <= scene.statuses.keys()
    assert scene.registry.refusal("generate", "llama:loud") is None
    assert isinstance(scene.registry.refusal("embed", "llama:loud"), InvalidRequest)
    assert isinstance(scene.registry.refusal("generate", "llama:gone"), ModelNotFound)
    assert scene.registry.base_of("llama:loud") == "llama"
    assert scene.registry.base_of("llama:gone") == "llama:gone"


def test_an_adapter_that_cannot_be_had_is_refused_until_an_agent_has_it(scene: Scene) -> None:
    scene.registry.desire({"llama": (), "llama:loud": ()}, 0.0)
    scene.serves(C, LLAMA)
    assert scene.registry.refusal("generate", "llama:loud") is None, "it is wished for"
    scene.registry.leave_out({"llama:loud": "it is broken"})
    refused = scene.registry.refusal("generate", "llama:loud")
    assert isinstance(refused, ModelNotFound) and refused.field == "model"
    assert "`loud` of the model `llama` cannot be served: it is broken" in refused.message
    scene.serves(C, replace(LLAMA, adapters=("loud",)))
    assert scene.registry.refusal("generate", "llama:loud") is None
    scene.serves(C, LLAMA)
    assert scene.registry.refusal("generate", "llama:loud") == refused
    scene.registry.leave_out({})
    assert scene.registry.refusal("generate", "llama:loud") is None


def test_an_adapter_that_went_is_remembered_as_a_model_is(scene: Scene) -> None:
    scene.serves(C, replace(LLAMA, adapters=("loud",)), 0.0)
    scene.serves(C, LLAMA, 1.0)
    assert scene.statuses["llama:loud"] == "unloaded"
    scene.passes(1.0 + MEMORY)
    assert "llama:loud" not in scene.statuses


def test_an_alias_has_the_adapters_of_its_model(scene: Scene) -> None:
    scene.registry.desire({"llama": ["gpt"]}, 0.0)
    assert scene.registry.resolve("gpt:loud") == "llama:loud"
    assert scene.registry.resolve("other:loud") == "other:loud"


SMALL = replace(model_info(), context_size=10, longest_token=4)
LARGE = replace(model_info(), context_size=100, longest_token=2)
ROOM = room_of([SMALL])


def refusal(prompt: PromptInput, room: PromptRoom = ROOM) -> PromptTooLong | None:
    return check_length(GenerateRequest(prompt=prompt), room)


def test_token_ids_are_counted_and_the_answer_needs_one() -> None:
    assert refusal((7,) * 9) is None
    assert refusal((7,) * 10) == PromptTooLong(
        "`prompt`: prompt is too long: 10 tokens > 9 maximum. "
        "This model's maximum context length is 9 tokens.",
        field="prompt",
    )


@pytest.mark.parametrize(("text", "is_too_long"), [("x" * 36, False), ("x" * 37, True)])
def test_a_text_has_at_least_its_bytes_by_the_longest_token(text: str, is_too_long: bool) -> None:
    assert (refusal(text) is not None) == is_too_long
    assert (refusal("é" * (len(text) // 2) + "x" * (len(text) % 2)) is not None) == is_too_long


def test_the_count_of_a_text_is_a_lower_bound() -> None:
    error = refusal("x" * 37)
    assert error is not None
    assert "at least 10 tokens > 9 maximum" in error.message


def test_a_lone_surrogate_is_measured_as_agents_read_it() -> None:
    assert refusal("\ud800" * 36) is None


def test_without_a_longest_token_texts_have_no_bound() -> None:
    unbounded = room_of([replace(SMALL, longest_token=0)])
    assert refusal("x" * 10**6, unbounded) is None
    assert refusal((7,) * 10, unbounded) is not None


def test_the_largest_counts_and_only_of_those_that_generate() -> None:
    both = room_of([SMALL, LARGE])
    assert refusal((7,) * 99, both) is None
    assert refusal("x" * 198, both) is None
    assert refusal("x" * 199, both) is not None
    assert room_of([SMALL, replace(LARGE, tasks=("embed",))]) == ROOM
    assert refusal((7,) * 10**5, largest([])) is None


def test_what_may_be_shortened_or_what_a_template_makes_is_never_too_long() -> None:
    assert check_length(GenerateRequest(prompt=(7,) * 10, n_discard=2), ROOM) is None
    messages = (ChatMessage(role="user", content="x" * 10**5),)
    assert check_length(GenerateRequest(messages=messages), ROOM) is None


def test_an_upstream_may_not_tell_its_context() -> None:
    upstream = Upstream(kind="ollama", address="h:1")
    unknown = replace(model_info(), context_size=0, upstream=upstream)
    assert room_of([unknown]) == PromptRoom()
    assert refusal((7,) * 10_000, room_of([unknown, SMALL])) is None
    assert refusal((7,) * 10, room_of([replace(SMALL, upstream=upstream)])) is not None


WRITER = replace(model_info("llama"), tasks=("generate",))
SEEING_WRITER = replace(WRITER, tasks=("generate", "vision"), context_size=WRITER.context_size + 1)


def known(*reports: Report) -> KnownModel:
    model = KnownModel(reports[-1])
    for each in reports:
        model.reports.add(each, 1)
    return model


def loaded(info: ModelInfo = WRITER) -> Report:
    return Report(info, is_loaded=True, abilities=info.abilities)


def test_one_that_is_loaded_is_told_of_before_those_that_load() -> None:
    loading = Report(
        replace(WRITER, architecture="other"), is_loaded=False, abilities=WRITER.abilities
    )
    assert known(loading).facts.view.status == "loading"
    view = known(loading, loaded()).facts.view
    assert (view.status, view.info) == ("loaded", WRITER)


def test_of_one_that_nobody_has_the_last_report_holds() -> None:
    view = KnownModel(loaded()).facts.view
    assert (view.status, view.info) == ("unloaded", WRITER)


def test_what_one_agent_can_do_the_model_can() -> None:
    facts = known(loaded(), loaded(SEEING_WRITER)).facts
    assert facts.tasks == {"generate", "vision"}
    assert facts.view.info == replace(WRITER, tasks=("generate", "vision"))
    assert facts.room.num_tokens == WRITER.context_size


def test_an_adapter_is_a_model_that_only_generates() -> None:
    info = replace(SEEING_WRITER, tasks=("generate", "embed", "vision"), adapters=("terse", "rude"))
    plain, terse, rude = adapted(loaded(info))
    assert plain.info == info
    assert (terse.info.name, rude.info.name) == ("llama:terse", "llama:rude")
    assert terse.info.tasks == ("generate", "vision") and terse.info.adapters == ()


def test_of_one_that_is_only_wished_for_the_name_is_known() -> None:
    view = unknown("llama")
    assert (view.info.name, view.info.tasks, view.status) == ("llama", (), "unloaded")


def test_a_model_whose_servers_are_all_gone_has_failed(scene: Scene) -> None:
    scene.loses_its_server(A, LLAMA)
    assert scene.statuses == {"bert": "loaded", "llama": "failed"}
    error = scene.registry.failed("llama", 0.0)
    assert isinstance(error, ModelFailed)
    assert error.message == ("the model `llama` cannot be served now: the server is away; start it")
    assert error.retry_after == SERVER_PAUSE
    assert scene.registry.failed(None, 0.0) is None, "another model serves"
    scene.leaves(B)
    scene.passes(MEMORY)
    error = scene.registry.failed(None, 0.0)
    assert error is not None and error.message.startswith("no model can be served now: the server")
    scene.serves(C, LLAMA)
    assert scene.statuses == {"llama": "loaded"}
    assert scene.registry.failed("llama", 0.0) is None, "one of two serves"
    scene.leaves(C)
    assert scene.statuses == {"llama": "failed"}
    scene.serves(A, LLAMA)
    assert scene.registry.failed("llama", 0.0) is None


def test_a_model_that_failed_to_load_is_refused_until_the_next_try(scene: Scene) -> None:
    scene.registry.desire({"new": (), "llama": ()}, 0.0)
    failures = {
        name: LoadFailure(Issue(code="x", message="why"), 30.0) for name in ("new", "llama")
    }
    scene.registry.fail(failures)
    error = scene.registry.failed("new", 10.0)
    assert isinstance(error, ModelFailed)
    assert (error.message, error.retry_after) == (
        "the model `new` cannot be served now: why",
        20.0,
    )
    assert scene.registry.failed("new", 30.0) is None
    assert scene.registry.failed("llama", 10.0) is None, "an agent serves it"
    assert scene.registry.failed("other", 10.0) is None


def test_a_model_that_is_desired_no_more_goes_with_its_last_agent(scene: Scene) -> None:
    registry = scene.registry
    registry.desire({"llama": (), "new": ()}, 0.0)
    registry.desire({}, 1.0)
    assert scene.statuses == {"bert": "loaded", "llama": "loaded"}
    scene.leaves(A)
    assert scene.statuses == {"bert": "loaded"}
    assert isinstance(registry.refusal("generate", "llama"), ModelNotFound)
    scene.leaves(B)
    assert scene.statuses == {"bert": "unloaded"}, "it was not removed"
    registry.desire({"bert": ()}, 2.0)
    registry.desire({}, 3.0)
    registry.check_integrity()
    assert scene.statuses == {}


def test_a_model_that_is_served_anew_is_remembered_as_others(scene: Scene) -> None:
    scene.registry.desire({"llama": ()}, 0.0)
    scene.registry.desire({}, 1.0)
    scene.serves(C, LLAMA)
    scene.leaves(A)
    scene.leaves(C)
    assert scene.statuses["llama"] == "unloaded"
