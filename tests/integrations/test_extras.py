"""Frameworks are imported only by the modules that are named after them."""

from __future__ import annotations

import pytest

from tests.support.programs import output_of

FRAMEWORKS = {
    "fastapi": "starlette",
    "flask": "flask",
    "django": "django",
    "openai": "openai",
    "anthropic": "anthropic",
    "litellm": "litellm",
    "opentelemetry": "opentelemetry",
    "prometheus": "prometheus_client",
}


def test_rules_and_middleware_import_no_framework() -> None:
    program = f"""
        import sys
        import zae_limiter.integrations.asgi, zae_limiter.integrations.wsgi
        import zae_limiter.integrations.llm.client
        print(sorted(set(sys.modules) & {set(FRAMEWORKS.values())!r}))
    """
    assert output_of(program) == "[]\n"


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_a_missing_framework_is_named_with_its_extra(extra: str) -> None:
    program = f"""
        import sys
        sys.modules[{FRAMEWORKS[extra]!r}] = None
        try:
            import zae_limiter.integrations.{extra}
        except ImportError as error:
            print(error)
    """
    expected = f"{extra} is not installed: pip install 'zae-limiter[{extra}]'\n"
    assert output_of(program) == expected
