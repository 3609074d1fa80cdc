"""The routes of this room for the OpenAPI document."""

from ....shared.errors import Conflict, NotFound, StoreUnavailable
from ...api.native.operations import NATIVE_ERRORS
from ...api.openapi.answers import Form
from ...api.openapi.bodies import Body
from ...api.openapi.document import ErrorClass, Operation, json_answer, parameter
from . import answer_types
from .bodies import SPEC_BODY

_PATH = "/api/v1/keys"
_ONE = f"{_PATH}/{{name}}"
_OF_ONE: tuple[ErrorClass, ...] = (NotFound, Conflict, StoreUnavailable)
_NAME = parameter("name", "path", required=True)


def _operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    answer: tuple[str, Form],
    *,
    status: int = 200,
    body: Body | None = None,
    errors: tuple[ErrorClass, ...] = (),
) -> Operation:
    return Operation(
        method=method,
        path=path,
        name=name,
        summary=summary,
        parameters=(_NAME,) if path.startswith(_ONE) else (),
        body=body,
        answers={status: json_answer(*answer)},
        errors=errors,
        told=NATIVE_ERRORS,
    )


OPERATIONS = (
    _operation(
        "GET",
        _PATH,
        "Keys",
        "All access keys, without their secrets.",
        ("All keys, by name.", answer_types.Keys),
    ),
    _operation(
        "POST",
        _PATH,
        "CreateKey",
        "Makes an access key; the answer is the only place where it ever stands.",
        ("The new key.", answer_types.NewKey),
        status=201,
        body=SPEC_BODY,
        errors=(Conflict, StoreUnavailable),
    ),
    _operation(
        "DELETE",
        _ONE,
        "RevokeKey",
        "Revokes a key; what its holder has open ends.",
        ("The key, revoked.", answer_types.Key),
        errors=_OF_ONE,
    ),
    _operation(
        "POST",
        f"{_ONE}/rotate",
        "RotateKey",
        "Gives a key another secret; the old one ends as if it were revoked.",
        ("The key with its new secret.", answer_types.NewKey),
        errors=_OF_ONE,
    ),
)
