"""One file a schema, in their order. A released one never changes."""
