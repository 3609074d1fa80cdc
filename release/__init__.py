"""What makes a release, and what a release may not break."""
