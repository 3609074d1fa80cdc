"""Messages of each kind that together say everything that the protocol can say."""

from arriero.shared.continuation import Continuation
from arriero.shared.errors import WireError
from arriero.shared.inference import (
    AgentId,
    GenerateRequest,
    LogProb,
    Rates,
    RequestId,
    TokenLogProbs,
    Usage,
)
from arriero.shared.inference.adapters import AdapterChoice
from arriero.shared.inference.conversation import (
    AudioPart,
    ChatMessage,
    ImagePart,
    ImageUrl,
    InputAudio,
    NamedTool,
    TextPart,
)
from arriero.shared.inference.grammars import GbnfGrammar, JsonSchemaGrammar, RegexGrammar
from arriero.shared.inference.prefix_peers import Peer, PrefixSource
from arriero.shared.messages import (
    Ask,
    Busy,
    Called,
    CallStarted,
    Cancel,
    Ended,
    Evicted,
    FromAgent,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Hello,
    Issue,
    Lend,
    LogRead,
    Noticed,
    Output,
    Piece,
    PromptRead,
    ReadLog,
    Refused,
    Reject,
    Reply,
    Start,
    Status,
    Welcome,
    Withdraw,
)
from arriero.shared.models.assignments import (
    Assign,
    Assignment,
    Device,
    Download,
    EngineOptions,
    HostFacts,
    Reload,
    WishedAdapter,
    Work,
)
from arriero.shared.queries import (
    Counted,
    CountTokens,
    Declined,
    DescribeTokenizer,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Query,
    Rank,
    Ranked,
    Result,
    Score,
    Tokenize,
    Tokenized,
    TokenizerDescription,
    Vector,
)
from arriero.shared.reports.log_lines import LogLine
from arriero.shared.reports.model_info import ModelInfo, Upstream
from arriero.shared.reports.statistics import Cells, DiskUse, Fetches, Histogram, Statistics
from arriero.shared.sampling import SamplingChoices

ID = RequestId("r1")
ERROR = WireError(
    code="prompt_too_long", message="too long", retryable=True, field="prompt", retry_after=1.5
)
USAGE = Usage(prompt_tokens=4, cached_tokens=3, completion_tokens=2, reasoning_tokens=1)
RATES = Rates(prefill_tokens_per_second=90.5, decode_tokens_per_second=9.5)
LOG_PROBS = (TokenLogProbs(LogProb(1, b"\xc3", -0.5), (LogProb(2, b"", -0.25),)),)
SAMPLING = SamplingChoices(
    temperature=0.5,
    top_k=40,
    top_p=0.9,
    min_p=0.1,
    typical_p=0.95,
    top_n_sigma=1.5,
    xtc_probability=0.25,
    xtc_threshold=0.125,
    repeat_penalty=1.25,
    repeat_last_n=64,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    dry_multiplier=0.5,
    dry_base=1.75,
    dry_allowed_length=2,
    dry_penalty_last_n=32,
    dry_sequence_breakers=("\n",),
    mirostat=2,
    mirostat_tau=5.5,
    mirostat_eta=0.125,
    logit_bias={"7": -1.5},
    allowed_token_ids=(3, 7),
    bad_words=("no",),
    stop=("END",),
    stop_token_ids=(3,),
    include_stop_str_in_output=True,
    min_tokens=1,
    ignore_eos=True,
)
ASSIGNMENT = Assignment(
    name="m",
    source="hf://o/r/m.gguf@main",
    sha256="0" * 64,
    projector="file:///p.gguf",
    adapters=(WishedAdapter(name="loud", source="file:///a.gguf", scale=0.5),),
    slots=4,
    context_size=4096,
    engine=EngineOptions(
        gpu_layers=8,
        kv_cells=8192,
        host_cache=2**20,
        threads=2,
        max_stall=0.25,
        speculate=4,
        deterministic=True,
        draft_model="/d.gguf",
    ),
    chat_template="{{ messages }}",
    sampling=SAMPLING,
)
WORK = Work(
    revision=7,
    assignment=ASSIGNMENT,
    phase="fetching",
    progress=0.5,
    download=Download(file="m.gguf", bytes=5, total=10, bytes_per_second=2.5, seconds_left=2.0),
    needed=2**30,
)
MODEL = ModelInfo(
    name="m",
    architecture="llama",
    parameters=8,
    size_bytes=16,
    context_size=4096,
    tasks=("generate", "vision"),
    longest_token=12,
    kernels="all",
    kv_layout="streams",
    fingerprint="f",
    upstream=Upstream(kind="vllm", address="h:1", abilities=("messages",)),
    draft_model="d",
    adapters=("loud",),
    deterministic=True,
)
CHAT = GenerateRequest(
    messages=(
        ChatMessage(
            role="user",
            name="ann",
            content=(
                TextPart(type="text", text="é"),
                ImagePart(type="image_url", image_url=ImageUrl(url="data:image/png;base64,AA==")),
                AudioPart(type="input_audio", input_audio=InputAudio(data="AA==", format="wav")),
            ),
        ),
        ChatMessage(role="tool", content="4", tool_call_id="c1"),
        ChatMessage(
            role="assistant",
            content="It is",
            reasoning_content="2 + 2",
            tool_calls=({"id": "c1"},),
        ),
    ),
    model="m",
    adapters=(AdapterChoice(name="loud", scale=0.5),),
    stream=False,
    max_tokens=9,
    seed=1,
    logprobs=True,
    top_logprobs=2,
    thinking=False,
    chat_template_kwargs={"mood": "good"},
    add_generation_prompt=False,
    continue_final_message=True,
    tools=({"type": "function"},),
    tool_choice=NamedTool(name="sum"),
    parallel_tool_calls=False,
    grammar=JsonSchemaGrammar(type="json_schema", schema={"type": "object"}),
    priority=-2,
    deadline_ms=500,
    prompt_logprobs=True,
    cache_key="k",
    save_cache=True,
    prompt_cache_key="p",
    **{name: getattr(SAMPLING, name) for name in SamplingChoices.__dataclass_fields__},
)

ANSWERS: tuple[Result, ...] = (
    Embedded(vectors=(Vector(vector="AACAPw==", num_tokens=3), Vector(error=ERROR))),
    Ranked(scores=(Score(score=0.5, num_tokens=3), Score(error=ERROR))),
    Tokenized(tokens=(1, 2)),
    Detokenized(text="\ufffd", bytes_base64="ww=="),
    Counted(num_tokens=3),
    TokenizerDescription(bos_text="<s>", eos_text="</s>", chat_template="{{ messages }}"),
    Declined(error=ERROR),
)
QUESTIONS: tuple[Query, ...] = (
    Embed(inputs=("a", (1, 2)), pooling="mean", normalize="none", dimensions=8),
    Rank(query="q", documents=("a", "b")),
    Tokenize(text="a", add_special=True, parse_special=True),
    Detokenize(tokens=(1, 2)),
    CountTokens(request=GenerateRequest(prompt="a")),
    DescribeTokenizer(),
)

FROM_AGENT: tuple[FromAgent, ...] = (
    Heartbeat(),
    Hello(
        protocol=1,
        agent_id=AgentId("a"),
        name="box",
        version="0.1.0",
        slots=4,
        model=MODEL,
        loading=MODEL,
        labels={"gpu": "none"},
        facts=HostFacts(
            memory=2**34,
            devices=(Device(name="gpu0", memory=2**33),),
            cores=8,
            disk_free=2**36,
            platform="linux",
            is_pinned=True,
        ),
        work=WORK,
        takes_over=True,
        secret="s",
    ),
    Status(
        slots=4,
        accepting=False,
        model=MODEL,
        issues=(Issue(code="adapter", message="it is gone", hint="bring it", adapter="loud"),),
        work=WORK,
        peer=Peer(address="h:1", tls=True, cells="c", cell_bytes=9),
    ),
    Statistics(
        num_running=1,
        num_waiting=2,
        cells=Cells(total=64, used=20, kept=10, parked=5),
        num_preemptions=3,
        num_grammars=4,
        num_embedding_cells=5,
        num_draft_cells=6,
        num_media_bytes=7,
        num_commands=8,
        fetches=Fetches(num=1, failed=2, tokens=3, bytes=4, seconds=0.5, lent=6),
        disk=DiskUse(
            blocks=1, bytes=2, read=3, tokens=4, written=5, failed_reads=6, failed_writes=7
        ),
        cached_tokens=8,
        computed_tokens=9,
        completion_tokens=10,
        drafted_tokens=11,
        accepted_tokens=12,
        decode_tokens=13,
        decode_seconds=0.25,
        prefill_tokens=14,
        prefill_seconds=0.5,
        busy_seconds=0.75,
        decode_tokens_per_second=9.5,
        prefill_tokens_per_second=90.5,
        tokens_per_second=50.5,
        average_running=1.5,
        stalls=Histogram(bounds=(0.1, 1.0), counts=(3, 2, 1), seconds=4.5),
    ),
    Output(
        items=(
            PromptRead(id=ID, prompt_tokens=4, cached_tokens=3),
            Piece(id=ID, text="é", kind="reasoning", tokens=(1, 2), log_probs=LOG_PROBS),
            CallStarted(id=ID, call_id="c", name="f"),
            Called(id=ID, call_id="c", name="f", arguments="{}"),
            Noticed(id=ID, code="n_discard_clamped", message="too many"),
            Ended(id=ID, finish_reason="stop", stop_string="END", usage=USAGE, rates=RATES),
            Refused(id=ID, error=ERROR),
            Busy(id=ID),
        )
    ),
    *(Reply(id=ID, result=each) for each in ANSWERS),
    LogRead(id=ID, lines=(LogLine(number=2**52, at=1.5, level="error", text="é"),)),
    Evicted(keys=(1, 2**62), everything=True),
)

FROM_BALANCER: tuple[FromBalancer, ...] = (
    Heartbeat(),
    Welcome(protocol=1, version="0.1.0", heartbeat_interval=1.0, heartbeat_timeout=5.0, secret="s"),
    Reject(reason="it is taken", retry=True, code="identity_taken"),
    Start(
        id=ID,
        request=CHAT,
        continuation=Continuation(
            num_characters=2,
            num_prompt_characters=3,
            num_prompt_log_probs=4,
            num_log_probs=5,
            num_calls_started=6,
            num_calls=7,
            text="Hé",
            num_tokens=8,
        ),
        scope="0af7651916cd43dd",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        fetch=PrefixSource(address="h:1", ticket="t", seconds=1.5),
    ),
    Start(
        id=ID,
        request=GenerateRequest(
            prompt=(1, 2),
            suffix="b",
            n_discard=16,
            tool_choice="none",
            grammar=GbnfGrammar(type="gbnf", grammar='root ::= "a"'),
        ),
        continuation=Continuation.after((1, 2**31)),
    ),
    Start(
        id=ID,
        request=GenerateRequest(
            prompt="a", prefill_only=True, grammar=RegexGrammar(type="regex", pattern="a+")
        ),
    ),
    Lend(ticket="t", seconds=1.5),
    Cancel(id=ID, is_unsent=True),
    *(Ask(id=ID, query=each) for each in QUESTIONS),
    Withdraw(id=ID),
    Assign(revision=7, assignment=ASSIGNMENT, drain_timeout=2.5),
    Reload(drain_timeout=2.5),
    ReadLog(id=ID, after=2**52, wait=True),
    Goodbye(),
)
