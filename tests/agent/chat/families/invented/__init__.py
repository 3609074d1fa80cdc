"""A folder of records as `agent/chat/families/records` is one, with one invented family."""
