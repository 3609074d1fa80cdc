"""A batch as it is shown."""

from ....jobs.core.batch import Batch
from .answer_types import BatchObject


def batch_object(batch: Batch, num_completed: int, num_failed: int) -> BatchObject:
    """The counts are those of now."""
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {
            "object": "list",
            "data": [
                {"code": fault.code, "message": fault.message, "param": None, "line": fault.line}
                for fault in batch.faults
            ],
        }
        if batch.faults
        else None,
        "input_file_id": batch.input_file,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file,
        "error_file_id": batch.error_file,
        "created_at": int(batch.created_at),
        "in_progress_at": _whole(batch.in_progress_at),
        "expires_at": int(batch.expires_at),
        "finalizing_at": _whole(batch.finalizing_at),
        "completed_at": _whole(batch.completed_at),
        "failed_at": _whole(batch.failed_at),
        "expired_at": _whole(batch.expired_at),
        "cancelling_at": _whole(batch.cancelling_at),
        "cancelled_at": _whole(batch.cancelled_at),
        "request_counts": {
            "total": batch.num_lines,
            "completed": num_completed,
            "failed": num_failed,
        },
        "metadata": batch.metadata,
    }


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
