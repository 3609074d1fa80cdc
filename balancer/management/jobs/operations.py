"""The routes of this room for the OpenAPI document."""

from ....shared.errors import Conflict, NotFound, StoreUnavailable
from ...api.native.operations import NATIVE_ERRORS
from ...api.openapi.document import Operation, json_answer, parameter
from . import answer_types

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/batches",
        name="Batches",
        summary="Everybody's batches: at most a hundred, those that are open first.",
        answers={200: json_answer("The batches.", answer_types.BatchViews)},
        errors=(StoreUnavailable,),
        told=NATIVE_ERRORS,
    ),
    Operation(
        method="POST",
        path="/api/v1/batches/{id}/cancel",
        name="CancelBatch",
        summary="Cancels a batch; the results that there are become its files.",
        parameters=(parameter("id", "path", required=True),),
        answers={200: json_answer("The batch.", answer_types.BatchView)},
        errors=(NotFound, Conflict, StoreUnavailable),
        told=NATIVE_ERRORS,
    ),
)
