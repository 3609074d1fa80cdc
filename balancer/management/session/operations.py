"""The routes of this room for the OpenAPI document."""

from ....shared.errors import Conflict, Forbidden, Unauthorized
from ...api.native.operations import NATIVE_ERRORS
from ...api.openapi.document import Operation, json_answer
from . import answer_types
from .bodies import LOG_IN_BODY

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/session",
        name="Session",
        summary="Who is logged in by the cookie, and whether anybody has to be.",
        answers={200: json_answer("The session, if there is one.", answer_types.SessionState)},
        told=NATIVE_ERRORS,
        is_keyless=True,
    ),
    Operation(
        method="POST",
        path="/api/v1/session",
        name="LogIn",
        summary="Logs in with an access key: the answer sets a cookie, for browsers.",
        body=LOG_IN_BODY,
        answers={200: json_answer("The new session.", answer_types.SessionState)},
        errors=(Unauthorized, Forbidden, Conflict),
        told=NATIVE_ERRORS,
        is_keyless=True,
    ),
    Operation(
        method="DELETE",
        path="/api/v1/session",
        name="LogOut",
        summary="Logs out; the session ends, and so does its cookie.",
        answers={200: json_answer("Nobody is logged in.", answer_types.SessionState)},
        errors=(Forbidden,),
        told=NATIVE_ERRORS,
        is_keyless=True,
    ),
)
