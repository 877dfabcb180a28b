"""The same API with Flask: threads share one limiter, processes share one store.

flask --app flask_app run
curl -H 'x-api-key: key-1' -X POST 'http://127.0.0.1:5000/complete?prompt=hello'
"""

import os

from flask import Flask, Response, jsonify, request

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")
ESTIMATE = 50

app = Flask(__name__)
limiter = SyncRateLimiter(repository=SyncRepository.open(url=URL))
limiter.set_resource_defaults(
    "complete", [Limit.per_minute("rpm", 5), Limit.per_minute("tpm", 1_000)]
)


@app.errorhandler(RateLimitExceeded)
def too_many(refused: RateLimitExceeded) -> Response:
    response = jsonify(detail=str(refused))
    response.status_code = 429
    if refused.retry_after_header is not None:
        response.headers["Retry-After"] = refused.retry_after_header
    return response


@app.post("/complete")
def complete() -> Response:
    key, prompt = request.headers["x-api-key"], request.args["prompt"]
    with limiter.acquire(key, "complete", {"rpm": 1, "tpm": ESTIMATE}) as lease:
        answer = prompt.upper()  # ... call the model ...
        tokens = len(prompt) + len(answer)
        lease.adjust(tpm=tokens - ESTIMATE)
    return jsonify(answer=answer, tokens=tokens)
