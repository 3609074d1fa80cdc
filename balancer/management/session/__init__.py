"""`/api/v1/session`: people log in to the dashboard with a key, and out."""
