"""Messages, blocks and tools of the Messages API: their types, and their neutral form."""
