"""The programs that build and check a release."""
