"""`/api/v1/keys`: operators list, make, revoke and rotate access keys."""
