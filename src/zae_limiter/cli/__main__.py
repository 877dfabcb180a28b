"""`python -m zae_limiter.cli` runs the command line."""

from ..__main__ import run_typed_command

run_typed_command()
