"""The routes of this room for the OpenAPI document."""

from ....shared.errors import Conflict, Forbidden, Unauthorized
from ...api.native.operations import NATIVE_ERRORS
from ...api.openapi.bodies import Body
from ...api.openapi.document import ErrorClass, Operation, json_answer
from . import answer_types
from .bodies import LOG_IN_BODY


def _operation(
    method: str,
    name: str,
    summary: str,
    answer: str,
    *,
    body: Body | None = None,
    errors: tuple[ErrorClass, ...] = (),
) -> Operation:
    """Each answers the session as it is then, and takes no key."""
    return Operation(
        method=method,
        path="/api/v1/session",
        name=name,
        summary=summary,
        body=body,
        answers={200: json_answer(answer, answer_types.SessionState)},
        errors=errors,
        told=NATIVE_ERRORS,
        is_keyless=True,
    )


OPERATIONS = (
    _operation(
        "GET",
        "Session",
        "Who is logged in by the cookie, and whether anybody has to be.",
        "The session, if there is one.",
    ),
    _operation(
        "POST",
        "LogIn",
        "Logs in with an access key: the answer sets a cookie, for browsers.",
        "The new session.",
        body=LOG_IN_BODY,
        errors=(Unauthorized, Forbidden, Conflict),
    ),
    _operation(
        "DELETE",
        "LogOut",
        "Logs out; the session ends, and so does its cookie.",
        "Nobody is logged in.",
        errors=(Forbidden,),
    ),
)
