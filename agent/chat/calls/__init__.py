"""Tool calls as the families write them, each notation read as it streams."""
