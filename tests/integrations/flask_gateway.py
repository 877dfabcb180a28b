"""The gateway with Flask: `gunicorn tests.integrations.flask_gateway:app`."""

from __future__ import annotations

from flask import Flask, Response, request

from tests.integrations.gateway_rules import CHARGE, PLAIN, RULES
from tests.integrations.sync_gateway import open_limiter, parts, refused_parts, work
from zae_limiter import SyncLease
from zae_limiter.integrations.flask import RateLimits

app = Flask(__name__)
limits = RateLimits(open_limiter(), RULES, legacy_fields=True)
limits.init_app(app)


def lease() -> SyncLease:
    found = limits.lease
    assert found is not None
    return found


def plain() -> dict[str, bool]:
    return {"ok": True}


for path in PLAIN:
    app.add_url_rule(path, path, plain)


@app.get("/answer/<int:status>")
@limits.charging(CHARGE)
def answer_with(status: int) -> Response:
    return Response(status=status)


@app.get("/raise", defaults={"what": "raise"})
@app.get("/committed", defaults={"what": "committed"})
@app.get("/consume", defaults={"what": ""})
@limits.charging(CHARGE)
def answer_whole(what: str) -> bytes:
    return work(what or request.args["n"], lease())


@app.get("/stream")
@limits.charging(CHARGE)
def stream() -> Response:
    return Response(parts(lease(), request.args.to_dict()))


@app.get("/late-refusal")
@limits.charging(CHARGE)
def late_refusal() -> Response:
    return Response(refused_parts(lease()))
