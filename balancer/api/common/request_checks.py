"""Checks the messages, functions and size of a request before the balancer accepts the request.

- Messages: chat templates accept an empty message or a tool result without a call, and the model
  would then answer a question that nobody asked. So such messages are refused.
- Functions: in the output formats of some models, a space, a bracket or a quote ends a function's
  name. So names may contain only letters, digits, `_` and `-`, as in OpenAI's and Anthropic's
  APIs, and the dots, slashes and colons of MCP servers.
- Size: a message that an agent cannot read closes the agent's connection, and the request would
  then do the same to the next agent. Only free-form JSON can be longer or more deeply nested in
  the message than in the request's body. So only free-form JSON is encoded and decoded as a test.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, StringConstraints, ValidationError

from ....shared.errors import InvalidRequest, RequestTooLarge
from ....shared.framing.frames import MAX_MESSAGE_BYTES
from ....shared.inference import ChatMessage, GenerateRequest, JsonSchemaGrammar, RequestId
from ....shared.messages import Ask, decode_from_balancer, encode_from_balancer
from ....shared.queries import CountTokens
from ....shared.validation import echo
from .body_fields import SAME_NAMES, FieldNames

MAX_TEXT_BYTES = MAX_MESSAGE_BYTES // 2
"""Maximum bytes of a request's texts and token ids, and of its other parts."""

# ---- messages


def check_messages(messages: Sequence[ChatMessage], names: FieldNames = SAME_NAMES) -> None:
    """Refuse an empty message, or a tool result without the id of its call.

    Raises `InvalidRequest`.

    `messages` come from a neutral request; `names` translates field names to the client's.
    """
    for place, message in enumerate(messages):
        if (problem := _problem(message)) is None:
            continue
        member, rule = problem
        field = f"messages[{place}].{member}"
        raise names.renamed(InvalidRequest(f"`{field}` {rule}", field=field))


def _problem(message: ChatMessage) -> tuple[str, str] | None:
    """Return the wrong member of `message` and its fault; `None` if `message` is valid.

    An assistant's message without text is valid: it may have only calls, or was cut off during
    reasoning. The result of a function may be empty.
    """
    if message.role == "tool" and message.tool_call_id is None:
        return "tool_call_id", "is missing: give the id of the call that this message answers"
    if message.role in ("assistant", "tool"):
        return None
    if message.content is None:
        return "content", "is missing: give a text, or a list of parts such as texts and pictures"
    if message.content == ():
        return "content", "must have at least one entry, not []"
    return None


# ---- functions

MAX_NAME = 256
"""Maximum characters of a function's name."""

_NAME = re.compile(r"[\w.:/-]+", re.ASCII)
_RULE = "must have only letters a to z, digits and _ - . : /"


def _callable_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(_RULE)
    return name


FunctionName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME), AfterValidator(_callable_name)
]
"""A function's name."""


def check_tools(tools: Iterable[Mapping[str, Any]], names: FieldNames = SAME_NAMES) -> None:
    """Refuse a function that a template cannot show or a model cannot call.

    Raises `InvalidRequest`.

    `tools` come from a neutral request; `names` translates field names to the client's. The
    members of `function` may also be members of the tool itself. Tools of other types are left to
    the template.
    """
    for place, tool in enumerate(tools):
        if tool.get("type", "function") != "function":
            continue
        try:
            _check_tool(tool, f"tools[{place}]")
        except InvalidRequest as error:
            raise names.renamed(error) from error


def _check_tool(tool: Mapping[str, Any], place: str) -> None:
    if "function" in tool:
        place, function = f"{place}.function", tool["function"]
        _refuse_unless(isinstance(function, Mapping), place, "must be an object", function)
    elif "name" in tool:
        function = tool
    else:
        raise InvalidRequest(f"`{place}.function` is missing", field=f"{place}.function")
    if "name" not in function:
        raise InvalidRequest(f"`{place}.name` is missing", field=f"{place}.name")
    name, parameters = function["name"], function.get("parameters")
    _refuse_unless(isinstance(name, str), f"{place}.name", "must be a string", name)
    is_callable = len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None
    _refuse_unless(is_callable, f"{place}.name", f"{_RULE}, at most {MAX_NAME} of them", name)
    is_schema = parameters is None or isinstance(parameters, Mapping)
    _refuse_unless(is_schema, f"{place}.parameters", "must be an object", parameters)


def _refuse_unless(is_right: bool, field: str, rule: str, value: object) -> None:
    if not is_right:
        raise InvalidRequest(f"`{field}` {rule}, not {echo(value)}", field=field)


# ---- size

_ID = RequestId("0" * 40)
"""An id as long as the longest id of a balancer."""


def check_readable(request: GenerateRequest) -> None:
    """Refuse a request that agents could not read. Raises `RequestTooLarge` or `InvalidRequest`.

    The request's texts and token ids must come from one body, or have at most `MAX_TEXT_BYTES`
    together.
    """
    free = _free_form(request)
    if free is None:
        return
    # Of the frames that carry requests to agents, this is the longest and most deeply nested.
    frame = encode_from_balancer(Ask(id=_ID, query=CountTokens(request=free)))
    if len(frame) > MAX_TEXT_BYTES:
        raise RequestTooLarge(
            f"the tools, calls, schema and variables of the request have {len(frame)} "
            f"bytes as JSON; at most {MAX_TEXT_BYTES} are allowed"
        )
    try:
        decode_from_balancer(frame)
    except ValidationError as error:
        finding = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidRequest(f"no agent could read the request: {finding}") from error


def check_copies(num_bytes: int, *, field: str) -> None:
    """Refuse a call whose requests have too many bytes together. Raises `RequestTooLarge`.

    `field` is the field that multiplies the body.
    """
    if num_bytes > MAX_TEXT_BYTES:
        raise RequestTooLarge(
            f"`{field}`: the requests of this call have {num_bytes} bytes together; at "
            f"most {MAX_TEXT_BYTES} are allowed",
            field=field,
        )


def _free_form(request: GenerateRequest) -> GenerateRequest | None:
    """Return `request` reduced to its free-form JSON, or `None` if it has none."""
    messages = tuple(_calls(request))
    grammar = request.grammar if isinstance(request.grammar, JsonSchemaGrammar) else None
    if not (messages or request.tools or grammar or request.chat_template_kwargs):
        return None
    return GenerateRequest(
        prompt=None if messages else "",
        messages=messages or None,
        tools=request.tools,
        grammar=grammar,
        chat_template_kwargs=request.chat_template_kwargs,
    )


def _calls(request: GenerateRequest) -> Iterator[ChatMessage]:
    for message in request.messages or ():
        if message.tool_calls:
            yield ChatMessage(role="assistant", tool_calls=message.tool_calls)
