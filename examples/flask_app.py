"""The API with Flask: threads share one limiter, processes share one store.

flask --app flask_app run
curl -N -H 'x-api-key: key-1' -X POST 'http://127.0.0.1:5000/complete?prompt=hello'
"""

import os
from collections.abc import Iterator

from flask import Flask, Response, request

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.integrations import Rule, by_header
from zae_limiter.integrations.flask import RateLimits

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")

app = Flask(__name__)
limiter = SyncRateLimiter(repository=SyncRepository.open(url=URL))
limiter.set_resource_defaults(
    "complete", [Limit.parse("rpm: 5/minute"), Limit.parse("tpm: 1,000/minute")]
)
limits = RateLimits(limiter)
limits.init_app(app)


@app.post("/complete")
@limits.charging(Rule("complete", key=by_header("x-api-key"), cost={"rpm": 1, "tpm": 0}))
def complete() -> Response:
    prompt, lease = request.args["prompt"], limits.lease
    assert lease is not None  # no rule exempts this view
    lease.consume(tpm=len(prompt))  # refused here, the call is a 429 and costs nothing

    def words() -> Iterator[str]:
        for word in prompt.upper().split():  # ... call the model ...
            lease.adjust(tpm=len(word))
            yield f"{word} "

    return Response(words(), mimetype="text/plain")
