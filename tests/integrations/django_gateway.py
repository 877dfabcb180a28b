"""The gateway with Django: `gunicorn tests.integrations.django_gateway:app`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from tests.integrations.gateway_rules import CHARGE, PLAIN, RULES
from tests.integrations.sync_gateway import open_limiter, parts, refused_parts, work
from zae_limiter import SyncLease
from zae_limiter.integrations.django import charging_middleware, charging_view, lease_of_request

middleware = charging_middleware(open_limiter(), RULES, legacy_fields=True)
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[f"{__name__}.middleware"],
    SECRET_KEY="test",
)


def lease_of(request: Any) -> SyncLease:
    found = lease_of_request(request)
    assert found is not None
    return found


def plain(request: Any) -> Any:
    return JsonResponse({"ok": True})


@charging_view(CHARGE)
def answer_with(request: Any, status: int) -> Any:
    return HttpResponse(status=status)


@charging_view(CHARGE)
def answer_whole(request: Any, what: str = "") -> Any:
    return HttpResponse(work(what or request.GET["n"], lease_of(request)))


@charging_view(CHARGE)
def stream(request: Any) -> Any:
    return StreamingHttpResponse(parts(lease_of(request), request.GET.dict()))


@charging_view(CHARGE)
def late_refusal(request: Any) -> Any:
    return StreamingHttpResponse(refused_parts(lease_of(request)))


urlpatterns = [
    *(path(each[1:], plain) for each in PLAIN),
    path("answer/<int:status>", answer_with),
    path("raise", answer_whole, {"what": "raise"}),
    path("committed", answer_whole, {"what": "committed"}),
    path("consume", answer_whole),
    path("stream", stream),
    path("late-refusal", late_refusal),
]
app = get_wsgi_application()
