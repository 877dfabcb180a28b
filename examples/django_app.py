"""The API with Django in one file.

python django_app.py runserver
curl -N -H 'x-api-key: key-1' -X POST 'http://127.0.0.1:8000/complete?prompt=hello'
"""

import os
import sys
from collections.abc import Iterator

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.integrations import Rule, by_header
from zae_limiter.integrations.django import charging_middleware, charging_view, lease_of_request

URL = os.environ.get("ZAEL_URL", "sqlite:///limits.db")

limiter = SyncRateLimiter(repository=SyncRepository.open(url=URL))
limiter.set_resource_defaults(
    "complete", [Limit.parse("rpm: 5/minute"), Limit.parse("tpm: 1,000/minute")]
)
middleware = charging_middleware(limiter)
settings.configure(
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=[f"{__name__}.middleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("SECRET_KEY", "for this example"),
)


@charging_view(Rule("complete", key=by_header("x-api-key"), cost={"rpm": 1, "tpm": 0}))
def complete(request: HttpRequest) -> StreamingHttpResponse:
    prompt, lease = request.GET["prompt"], lease_of_request(request)
    assert lease is not None  # no rule exempts this view
    lease.consume(tpm=len(prompt))  # refused here, the call is a 429 and costs nothing

    def words() -> Iterator[str]:
        for word in prompt.upper().split():  # ... call the model ...
            lease.adjust(tpm=len(word))
            yield f"{word} "

    return StreamingHttpResponse(words(), content_type="text/plain")


urlpatterns = [path("complete", complete)]
app = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
