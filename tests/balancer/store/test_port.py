"""What who came too late is told."""

from arriero.balancer.store.port import KeyConflict, RevisionConflict
from arriero.balancer.store.records import SavedState


def test_a_conflict_has_what_is_saved_now() -> None:
    saved = SavedState(4, "{}")
    assert str(RevisionConflict(saved)) == "the saved revision is 4"
    assert RevisionConflict(saved).current == saved
    assert str(RevisionConflict(None)) == "the saved revision is 0"
    assert KeyConflict(None).current is None
