"""Those who use the fleet of a run: clients that stay, clients that do not, and an operator."""
