"""Attack the limiter for a while: `python -m tests.attacks [--seconds 600] [word ...]`.

Each attack has its share of the time and is run at least once. Words choose attacks by title.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .catalog import ATTACKS, Attack
from .effort import VARIABLE

_FAILED = "tests failed"
_COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when every attack was held, 1 when one was not."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to attack in all")
    parser.add_argument("words", nargs="*", help="parts of the titles of attacks")
    chosen = parser.parse_args(arguments)
    attacks = [a for a in ATTACKS if all(word in a.title for word in chosen.words)]
    if not attacks:
        parser.error(f"no attack has these words in its title: {' '.join(chosen.words)}")
    is_held = True
    for attack in attacks:
        is_held = _run(attack, chosen.seconds / len(attacks)) and is_held
    return 0 if is_held else 1


def _run(attack: Attack, seconds: float) -> bool:
    """Run an attack again and again, and print what was tried and what came of it."""
    began_s, rounds, counts = time.monotonic(), 0, Counter[str]()
    while not rounds or (time.monotonic() - began_s < seconds and not _is_broken(counts)):
        rounds += 1
        counts += _run_once(attack)
    took_s = time.monotonic() - began_s
    outcome = "BROKEN" if _is_broken(counts) else "held"
    told = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    print(f"{outcome:6}  {attack.title}: {told} in {rounds} rounds, {took_s:.0f} s", flush=True)
    return outcome == "held"


def _run_once(attack: Attack) -> Counter[str]:
    options = ("-q", "-p", "no:cacheprovider", "-n", "0", "--tb=short")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tried.log"
        log.touch()
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *attack.tests],
            env={**os.environ, VARIABLE: str(log)},
            capture_output=True,
            text=True,
            check=False,
        )
        tried = log.read_text(encoding="utf-8").splitlines()
    lines = ran.stdout.strip().splitlines() or [ran.stderr]
    counts = Counter({f"tests {what}": int(n) for n, what in _COUNTED.findall(lines[-1])})
    for line in tried:
        number, _, what = line.partition(" ")
        counts[what] += int(number)
    if ran.returncode:
        print(ran.stdout, ran.stderr, file=sys.stderr, flush=True)
        counts[_FAILED] += not counts[_FAILED]
    return counts


def _is_broken(counts: Counter[str]) -> bool:
    return bool(counts[_FAILED] or counts["tests error"])


if __name__ == "__main__":
    sys.exit(main())
