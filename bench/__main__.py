"""Entry point of `python -m bench`."""

from .command import main

main()
