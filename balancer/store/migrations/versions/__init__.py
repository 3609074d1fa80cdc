"""One file for each version that changed the schema. A released file never changes."""
