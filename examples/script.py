"""A script that waits for its turn: five calls at two a second, however many scripts run at once.

python script.py
"""

import os
import time

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")


def main() -> None:
    with SyncRateLimiter(repository=SyncRepository.open(url=URL)) as limiter:
        limiter.set_resource_defaults("mail", [Limit.per_second("messages", 2)])
        started = time.monotonic()
        for number in range(1, 6):
            with limiter.acquire("newsletter", "mail", {"messages": 1}, timeout=10):
                print(f"message {number} sent after {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
