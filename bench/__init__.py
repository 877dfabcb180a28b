"""Compares zae-limiter with other limiters, side by side in one run: `python -m bench`."""
