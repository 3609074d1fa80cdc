"""The routes of this room for the OpenAPI document."""

from ....shared.errors import Conflict, NotFound, StoreUnavailable
from ...api.native.operations import NATIVE_ERRORS
from ...api.openapi.document import Operation, json_answer, parameter
from . import answer_types
from .bodies import SPEC_BODY

_NAME = parameter("name", "path", required=True)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/keys",
        name="Keys",
        summary="All access keys, without their secrets.",
        answers={200: json_answer("All keys, by name.", answer_types.Keys)},
        told=NATIVE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/v1/keys",
        name="CreateKey",
        summary="Makes an access key; the answer is the only place where it ever stands.",
        body=SPEC_BODY,
        answers={201: json_answer("The new key.", answer_types.NewKey)},
        errors=(Conflict, StoreUnavailable),
        told=NATIVE_ERRORS,
    ),
    Operation(
        method="DELETE",
        path="/api/v1/keys/{name}",
        name="RevokeKey",
        summary="Revokes a key; what its holder has open ends.",
        parameters=(_NAME,),
        answers={200: json_answer("The key, revoked.", answer_types.Key)},
        errors=(NotFound, Conflict, StoreUnavailable),
        told=NATIVE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/v1/keys/{name}/rotate",
        name="RotateKey",
        summary="Gives a key another secret; the old one ends as if it were revoked.",
        parameters=(_NAME,),
        answers={200: json_answer("The key with its new secret.", answer_types.NewKey)},
        errors=(NotFound, Conflict, StoreUnavailable),
        told=NATIVE_ERRORS,
    ),
)
