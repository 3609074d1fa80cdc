"""The settings of a balancer."""

import socket
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, GetPydanticSchema, model_validator
from pydantic_core.core_schema import literal_schema

from ..shared.models.sources import MAX_HTTP_HOSTS, http_host
from ..shared.quantities import Address, Duration, Size, format_duration
from ..shared.settings.declaration import DaemonSettings, ListenAddress, Shown
from .access.identity import NAMES, NO_LIMITS, CallerLimits, parse_limits
from .api.conversation_store import DEFAULT_AGE, DEFAULT_BYTES
from .api.transport.defaults import (
    EARLY_HEADERS,
    HEADER_TIMEOUT,
    MAX_CONNECTIONS,
    WRITE_TIMEOUT,
)
from .api.transport.hosts import checked_host, checked_origin, checked_url
from .fleet.limits import Limits
from .fleet.routing.policies import POLICIES
from .jobs.files_place import FileLimits, FilesPlace, parse_place
from .store.url import StoreUrl, parse_store_url

_LIMITS = Limits()
_FILES = FileLimits()

Timeout = Annotated[Duration, Field(gt=0), Shown("DURATION")]
RoutingName = Annotated[
    str,
    GetPydanticSchema(lambda *_: literal_schema([*POLICIES])),
    Shown("|".join(POLICIES)),
]


class BalancerSettings(DaemonSettings):
    """The settings of a balancer. Times are in seconds."""

    program: ClassVar[str] = "balancer"
    summary: ClassVar[str] = (
        "Takes inference requests, holds them until an agent has a free slot, and forwards the "
        "answers as they are made."
    )

    inference_addr: ListenAddress = Field(
        default=Address("127.0.0.1", 8061),
        description=(
            "address for clients, which send inference requests: the native API under /api/v1, "
            "OpenAI's under /v1, Anthropic's and Ollama's"
        ),
    )
    management_addr: ListenAddress = Field(
        default=Address("127.0.0.1", 8060),
        description=(
            "address for agents and operators: the agents' WebSocket, the management API, "
            "/metrics, and the dashboard at /"
        ),
    )
    tls_cert: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description=(
            "certificate for both ports, in PEM form, followed by its chain. With a "
            "certificate both ports accept only TLS. A changed file is loaded without a restart"
        ),
    )
    tls_key: Annotated[Path | None, Shown("FILE")] = Field(
        default=None, description="private key of the certificate, in PEM form and not encrypted"
    )
    agent_ca: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description=(
            "certificates of the authority that signs agents' certificates, in PEM form. If "
            "set, an agent must show a certificate of this authority (the agent's --tls-cert)"
        ),
    )
    insecure: bool = Field(
        default=False,
        description=(
            "allow the ports to listen on addresses that other hosts reach without TLS or "
            "without access keys; use it only if something else protects the network"
        ),
    )
    without_keys: bool = Field(
        default=False,
        description=(
            "serve requests without an access key although all keys are gone from --state. "
            "Without this flag such a balancer refuses all requests. One start with the flag "
            "is enough"
        ),
    )
    allowed_host: Annotated[
        tuple[Annotated[str, AfterValidator(checked_host)], ...], Shown("NAME", "none")
    ] = Field(
        default=(),
        description=(
            "host name, with or without a port, that clients and agents use for this balancer. "
            "IP addresses, localhost and the names in --inference-addr and --management-addr "
            "are always allowed"
        ),
    )
    allowed_origin: Annotated[
        tuple[Annotated[str, AfterValidator(checked_origin)], ...], Shown("ORIGIN", "none")
    ] = Field(
        default=(),
        description=(
            "origin whose web pages may call models from a browser (CORS), such as "
            "https://chat.example. http://localhost:* allows any port, app://* any origin with "
            "this scheme, and * any page; with * use access keys"
        ),
    )
    public_url: Annotated[str | None, AfterValidator(checked_url), Shown("URL")] = Field(
        default=None,
        description=(
            "URL at which clients reach the inference port, which the dashboard shows in its "
            "commands. Set it behind a proxy; by default the dashboard shows its own host with "
            "the inference port"
        ),
    )
    header_timeout: Timeout = Field(
        default=HEADER_TIMEOUT,
        description=("maximum time in which a client must send the header of a request"),
    )
    write_timeout: Timeout = Field(
        default=WRITE_TIMEOUT,
        description=(
            "time after which the connection of a client that reads nothing of its answer is closed"
        ),
    )
    metrics_for_clients: bool = Field(
        default=False,
        description=(
            "serve /metrics also at --inference-addr; clients then see the names of agents and "
            "models"
        ),
    )
    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=MAX_CONNECTIONS, description="maximum connections to each of the two ports"
    )
    state: Annotated[StoreUrl, BeforeValidator(parse_store_url), Shown("URL")] = Field(
        default=StoreUrl("memory"),
        description=(
            "database for the desired state, access keys and history: sqlite:///FILE (in the "
            "current folder, unless FILE is an absolute path), "
            "postgresql://USER@HOST/DATABASE, or memory://, which loses everything when the "
            "balancer ends"
        ),
    )
    balancer_name: Annotated[
        str, Field(min_length=1, max_length=200), Shown("NAME", "host name")
    ] = Field(
        default_factory=socket.gethostname,
        description="name that people see for this balancer if several balancers share a --state",
    )
    workers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description=(
            "number of balancer processes, which share both ports; each has its own queue and "
            "its own limits. More than one process needs --state sqlite:// or postgresql://"
        ),
    )
    files: Annotated[
        FilesPlace | None, BeforeValidator(parse_place), Shown("FOLDER|URL", "next to --state")
    ] = Field(
        default=None,
        description=(
            "storage for the files of /v1/files and of batches: a folder, or a URL that fsspec "
            "can open, such as s3://BUCKET/FOLDER. With SQLite the default is a folder next to "
            "the database; with memory:// it is a temporary folder. With postgresql:// files "
            "and batches are off until you set this"
        ),
    )
    max_file_size: Annotated[Size, Shown("SIZE", "1GiB")] = Field(
        default=_FILES.max_file, description="maximum size of an uploaded file"
    )
    files_limit: Annotated[Size, Shown("SIZE", "64GiB")] = Field(
        default=_FILES.max_total,
        description=(
            "maximum size of all files together. The files of one access key may take at most "
            "as much as is still free"
        ),
    )
    batches_outlive_keys: bool = Field(
        default=False,
        description=(
            "let a batch run to its end although its access key was revoked, replaced or has "
            "expired; by default the batch is cancelled"
        ),
    )
    admin_key_file: Annotated[Path | None, Shown("FILE")] = Field(
        default=None,
        description=(
            "file with an access key of the role admin, which is valid in addition to the keys "
            "in --state. Once there is any key, every call needs a key"
        ),
    )
    max_buffered_requests: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=_LIMITS.max_buffered_requests,
        description="maximum requests that wait in the queue for a slot; 0 turns queueing off",
    )
    request_memory: Annotated[Size, Field(ge=64 * 2**20), Shown("SIZE", "512MiB")] = Field(
        default=_LIMITS.request_memory,
        description=(
            "maximum memory of each worker for requests that wait or run. Bodies that are "
            "being read may take half as much in addition, and answers that are not streamed a "
            "quarter. One caller may use at most half. Raise it if many long prompts wait at "
            "once"
        ),
    )
    routing: RoutingName = Field(
        default=_LIMITS.routing,
        description="rule that chooses an agent for each request: "
        + "; ".join(f"{name}, by {policy.summary}" for name, policy in POLICIES.items()),
    )
    buffered_request_timeout: Timeout = Field(
        default=_LIMITS.buffered_request_timeout,
        description=("maximum time that a request waits in the queue for a slot"),
    )
    early_headers: Annotated[Duration, Field(ge=0), Shown("DURATION")] = Field(
        default=EARLY_HEADERS,
        description=(
            "time after which a streaming request that still waits is answered with status "
            "200, so that proxies do not cut the connection. The stream then says what the "
            "request waits for, and a later error is an event. Keep it below the timeout "
            "of your proxies"
        ),
    )
    first_token_timeout: Timeout = Field(
        default=_LIMITS.first_token_timeout,
        description=(
            "maximum time from getting a slot to the first token. Each report of the agent "
            "that it is reading the prompt starts the time anew"
        ),
    )
    token_timeout: Timeout = Field(
        default=_LIMITS.token_timeout,
        ge=0.2,
        description=(
            "maximum time between two tokens of an answer; at least 200ms, because agents send "
            "the tokens of answers that are not streamed only ten times a second"
        ),
    )
    request_timeout: Timeout = Field(
        default=_LIMITS.request_timeout,
        description=("maximum time of a request, from its arrival to the end of its answer"),
    )
    key_limits: Annotated[CallerLimits, BeforeValidator(parse_limits), Shown("LIMITS", "none")] = (
        Field(
            default=NO_LIMITS,
            description=(
                "limits for each access key that has no limits of its own, such as "
                "requests-per-minute=60,tokens-per-minute=100000. The limits are "
            )
            + ", ".join(NAMES),
        )
    )
    anonymous_limits: Annotated[
        CallerLimits, BeforeValidator(parse_limits), Shown("LIMITS", "none")
    ] = Field(
        default=NO_LIMITS,
        description=(
            "limits for each IP address that sends requests without an access key, written "
            "like --key-limits"
        ),
    )
    responses_limit: Annotated[Size, Shown("SIZE", "64MiB")] = Field(
        default=DEFAULT_BYTES,
        description=(
            "maximum memory for the stored answers of /v1/responses and the threads of "
            "/v1/messages; 0 stores none. Requests in the background or with an "
            "Idempotency-Key may take as much in addition. The same maximum holds for each in "
            "a --state on disk. Access keys share it fairly; raise it if responses in the "
            "background are refused"
        ),
    )
    responses_max_age: Timeout = Field(
        default=DEFAULT_AGE,
        description=("time after which an unused stored answer or thread is deleted"),
    )
    heartbeat_interval: Timeout = Field(
        default=_LIMITS.heartbeat_interval,
        description="interval at which the balancer and its agents send heartbeats",
    )
    heartbeat_timeout: Timeout = Field(
        default=_LIMITS.heartbeat_timeout,
        description=("time without a message from an agent after which the agent counts as lost"),
    )

    strict_fields: bool = Field(
        default=False,
        description=(
            "refuse requests to OpenAI's, Anthropic's and Ollama's paths that have fields "
            "without effect; by default such fields are ignored"
        ),
    )
    media_urls: bool = Field(
        default=False,
        description=(
            "fetch the pictures that requests link to, over http and https and only from "
            "public addresses; by default a request must contain its pictures"
        ),
    )
    model_source_http: Annotated[
        tuple[Annotated[str, AfterValidator(http_host)], ...],
        Field(max_length=MAX_HTTP_HOSTS),
        Shown("HOST", "none"),
    ] = Field(
        default=(),
        description=(
            "host from which agents may download models over http://, such as files.lan or "
            "files.lan:8080. HTTP does not protect the file on its way, so give its sha256 in "
            "the desired state"
        ),
    )
    model_memory: Annotated[Duration, Field(ge=0), Shown("DURATION")] = Field(
        default=_LIMITS.model_memory,
        description=(
            "time for which requests for a model still wait in the queue after its last agent "
            "has left; with 0 they fail at once"
        ),
    )

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Self:
        if self.tls_cert is None and self.tls_key is not None:
            raise ValueError("--tls-cert: is missing; --tls-key needs it")
        if self.tls_key is None and self.tls_cert is not None:
            raise ValueError("--tls-key: is missing; --tls-cert needs it")
        if self.agent_ca is not None and self.tls_cert is None:
            raise ValueError("--agent-ca: needs --tls-cert and --tls-key")
        return self

    @model_validator(mode="after")
    def _workers_share_a_store(self) -> Self:
        if self.workers > 1 and self.state.kind == "memory":
            raise ValueError(
                f"--workers: {self.workers} processes need a --state that they share, "
                "sqlite:///FILE or postgresql://USER@HOST/DATABASE, not memory://"
            )
        return self

    @model_validator(mode="after")
    def _timeout_spans_interval(self) -> Self:
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise ValueError(
                "--heartbeat-timeout: must be longer than --heartbeat-interval "
                f"({format_duration(self.heartbeat_interval)}), "
                f"not {format_duration(self.heartbeat_timeout)}"
            )
        return self
