"""The tables' history, for Alembic: each file in `versions` leads from one schema to the next."""
