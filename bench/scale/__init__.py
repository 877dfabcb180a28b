"""What a hot key and a large fleet come to: the real flows on virtual time, and arithmetic.

python -m bench.scale
"""
