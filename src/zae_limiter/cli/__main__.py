"""This module runs the command line as `python -m zae_limiter.cli`."""

from . import cli

cli(prog_name="zae-limiter")
