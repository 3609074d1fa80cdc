"""The migrations of the tables, for Alembic. Each file in `versions` leads to the next schema."""
