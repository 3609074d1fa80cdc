"""`/v1/files` and `/v1/batches` as operations of an OpenAPI document."""

from dataclasses import replace
from functools import partial

from .....shared.errors import Conflict, InvalidRequest, NotFound, NotSupported, StoreUnavailable
from ...openapi.document import Answer, Operation, json_answer, parameter
from ...openapi.schemas import one_of
from ..operations import OPENAI_ERRORS
from . import answer_types
from .requests import BATCH_BODY
from .upload_form import UPLOAD_BODY

_ID = parameter("id", "path", required=True)
_AFTER = parameter("after", "query")
_operation = partial(Operation, told=OPENAI_ERRORS)

_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

_ROUTES = (
    _operation(
        method="POST",
        path="/v1/files",
        name="CreateFile",
        summary="Uploads a file.",
        body=UPLOAD_BODY,
        answers={200: json_answer("The file.", answer_types.FileObject)},
    ),
    _operation(
        method="GET",
        path="/v1/files",
        name="Files",
        summary="The caller's files.",
        parameters=(
            _AFTER,
            parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 10_000}),
            parameter("order", "query", one_of("asc", "desc")),
            parameter("purpose", "query"),
        ),
        answers={200: json_answer("One page of them.", answer_types.FileList)},
        errors=(InvalidRequest,),
    ),
    _operation(
        method="GET",
        path="/v1/files/{id}",
        name="OneFile",
        summary="One file.",
        parameters=(_ID,),
        answers={200: json_answer("The file.", answer_types.FileObject)},
        errors=(NotFound,),
    ),
    _operation(
        method="DELETE",
        path="/v1/files/{id}",
        name="DeleteFile",
        summary="Deletes a file that no running batch reads.",
        parameters=(_ID,),
        answers={200: json_answer("The file is deleted.", answer_types.DeletedFile)},
        errors=(NotFound, Conflict),
    ),
    _operation(
        method="GET",
        path="/v1/files/{id}/content",
        name="FileContent",
        summary="What is in a file.",
        parameters=(_ID, parameter("Range", "header")),
        answers={
            200: Answer("The bytes.", _BYTES),
            206: Answer("The bytes of `Range`.", _BYTES),
            416: Answer("The file has no such bytes."),
        },
        errors=(NotFound,),
    ),
    _operation(
        method="POST",
        path="/v1/batches",
        name="CreateBatch",
        summary="Runs the lines of a file.",
        body=BATCH_BODY,
        answers={200: json_answer("The batch.", answer_types.BatchObject)},
        errors=(NotFound,),
    ),
    _operation(
        method="GET",
        path="/v1/batches",
        name="Batches",
        summary="The caller's batches, the newest first.",
        parameters=(
            _AFTER,
            parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 100}),
        ),
        answers={200: json_answer("One page of them.", answer_types.BatchList)},
        errors=(InvalidRequest,),
    ),
    _operation(
        method="GET",
        path="/v1/batches/{id}",
        name="OneBatch",
        summary="One batch.",
        parameters=(_ID,),
        answers={200: json_answer("The batch.", answer_types.BatchObject)},
        errors=(NotFound,),
    ),
    _operation(
        method="POST",
        path="/v1/batches/{id}/cancel",
        name="CancelBatch",
        summary="Cancels a batch; the results that there are become its files.",
        parameters=(_ID,),
        answers={200: json_answer("The batch.", answer_types.BatchObject)},
        errors=(NotFound, Conflict),
    ),
)

OPERATIONS = tuple(
    replace(each, errors=(*each.errors, NotSupported, StoreUnavailable)) for each in _ROUTES
)
