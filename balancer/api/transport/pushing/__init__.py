"""The events of one answer, rendered and written where they arrive."""
