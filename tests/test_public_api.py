"""The public shape: what is exported, typed, documented, and equal in both facades."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib.resources import files
from types import ModuleType
from typing import Any

import pytest

import zae_limiter
import zae_limiter.bucket
import zae_limiter.testing
import zae_limiter.visualization
from zae_limiter import (
    BucketState,
    Lease,
    RateLimiter,
    Repository,
    StackManager,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    SyncStackManager,
    ValidationError,
)
from zae_limiter.lease import Acquisition, SyncAcquisition
from zae_limiter.opening import DEFAULT_OPTIONS, OpenOptions

TWINS = [
    (Repository, SyncRepository),
    (RateLimiter, SyncRateLimiter),
    (Lease, SyncLease),
    (Acquisition, SyncAcquisition),
    (StackManager, SyncStackManager),
]
SYNC_DUNDERS = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
SYNC_ONLY_PARAMETERS = {("open", "parallel_mode"), ("connect", "parallel_mode")}


def test_exported_names_are_sorted_and_exist() -> None:
    assert zae_limiter.__all__ == sorted(zae_limiter.__all__)
    assert len(zae_limiter.__all__) == len(set(zae_limiter.__all__))
    for name in zae_limiter.__all__:
        assert hasattr(zae_limiter, name), name


def test_names_that_are_imported_later_are_listed() -> None:
    code = "import zae_limiter; assert not set(zae_limiter.__all__) - set(dir(zae_limiter))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_the_package_leaves_limiters_and_asyncio_to_later() -> None:
    code = "import zae_limiter, sys; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "ssl", "zae_limiter.limiter"} & set(said.stdout.split())


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Limitr'"):
        _ = zae_limiter.Limitr  # type: ignore[attr-defined]


def test_every_public_name_is_exported() -> None:
    offered = {
        name
        for name, value in vars(zae_limiter).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert offered <= set(zae_limiter.__all__)


def test_every_error_is_exported() -> None:
    from zae_limiter.core import exceptions, rate_limit_exceeded

    errors = {
        name
        for module in (exceptions, rate_limit_exceeded)
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    assert errors <= set(zae_limiter.__all__)
    for name in errors - {"StoredDataWarning"}:
        assert issubclass(getattr(zae_limiter, name), zae_limiter.ZAELimiterError)


def methods(owner: type) -> Iterator[tuple[str, Any]]:
    """Public methods and those of the context manager, with what they hold."""
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        called = getattr(value, "__func__", value)
        is_dunder = name in SYNC_DUNDERS or name in SYNC_DUNDERS.values()
        if inspect.isfunction(called) and (is_dunder or not name.startswith("_")):
            yield name, called


def shape(owner: type, name: str, method: Any) -> tuple[Any, ...]:
    """Everything of a signature that the twins must share."""
    signature = inspect.signature(method)
    parameters = [
        (p.name, p.kind, p.default, plain(str(p.annotation)))
        for p in signature.parameters.values()
        if not (owner is SyncRepository and (name, p.name) in SYNC_ONLY_PARAMETERS)
    ]
    return parameters, plain(str(signature.return_annotation))


def plain(annotation: str) -> str:
    return re.sub(r"\bSync(?=[A-Z])", "", annotation)


@pytest.mark.parametrize(("asynchronous", "blocking"), TWINS, ids=lambda twin: twin.__name__)
def test_both_facades_have_the_same_methods(asynchronous: type, blocking: type) -> None:
    names = {SYNC_DUNDERS.get(name, name) for name, _ in methods(asynchronous)}
    assert names == {name for name, _ in methods(blocking)}


@pytest.mark.parametrize(("asynchronous", "blocking"), TWINS, ids=lambda twin: twin.__name__)
def test_both_facades_have_the_same_signatures(asynchronous: type, blocking: type) -> None:
    blocking_methods = dict(methods(blocking))
    for name, method in methods(asynchronous):
        twin = blocking_methods[SYNC_DUNDERS.get(name, name)]
        assert shape(asynchronous, name, method) == shape(blocking, name, twin), name
        assert not inspect.iscoroutinefunction(twin), name


@pytest.mark.parametrize(("asynchronous", "blocking"), TWINS, ids=lambda twin: twin.__name__)
def test_both_facades_have_equal_docstrings(asynchronous: type, blocking: type) -> None:
    blocking_methods = dict(methods(blocking))
    for name, method in methods(asynchronous):
        if not name.startswith("_") and name != "is_available":
            assert inspect.getdoc(method) == inspect.getdoc(blocking_methods[name]), name


def test_methods_that_do_io_are_coroutines() -> None:
    free = {
        "acquire",
        "builder",
        "capabilities",
        "get_cache_stats",
        "get_stats",
        "listen",
        "on_scope",
        "token",
    }
    for owner in (Repository, RateLimiter, Lease):
        for name, method in methods(owner):
            is_async = inspect.iscoroutinefunction(method)
            assert is_async is (name not in free), f"{owner.__name__}.{name}"


@pytest.mark.parametrize("owner", [twin for pair in TWINS for twin in pair])
def test_every_public_method_is_documented(owner: type) -> None:
    assert inspect.getdoc(owner)
    for name in dir(owner):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(owner, name)
        if isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value):
            assert inspect.getdoc(getattr(owner, name)), f"{owner.__name__}.{name}"


def test_every_exported_class_is_documented() -> None:
    for name in zae_limiter.__all__:
        value = getattr(zae_limiter, name)
        if inspect.isclass(value):
            doc = inspect.getdoc(value)
            assert doc, name
            assert not doc.startswith(f"{name}("), f"{name} has only the docstring of a dataclass"


HEAVY = ["aiobotocore", "aiohttp", "boto3", "botocore", "click", "gevent", "questionary", "rich"]
HEAVY += ["sqlite3", "urllib3", "yaml", "pytest", "hypothesis"]


@pytest.mark.parametrize("module", ["zae_limiter", "zae_limiter.testing"])
def test_importing_the_package_imports_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print([x for x in {HEAVY!r} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_store_imports_only_what_it_needs() -> None:
    program = (
        "import sys; from zae_limiter import SyncRepository\n"
        "SyncRepository.open(url='memory://')\n"
        f"print([x for x in {HEAVY!r} if x in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_option_of_open_has_a_default_and_is_told_of() -> None:
    assert DEFAULT_OPTIONS.keys() == OpenOptions.__annotations__.keys()
    for owner in (Repository, SyncRepository):
        told = inspect.getdoc(owner.open) or ""
        for name in DEFAULT_OPTIONS:
            assert f"`{name}" in told, name


def test_open_and_connect_refuse_options_that_they_do_not_know() -> None:
    with pytest.raises(TypeError, match=r"open\(\) .* 'colour'"):
        SyncRepository.open(url="memory://", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"connect\(\) .* 'create'"):
        SyncRepository.connect(url="memory://", create=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("field", "value"),
    [("create", "no"), ("create", 1), ("bucket_ttl_multiplier", 10**400), ("coalesce", None)],
)
def test_open_refuses_options_that_make_no_sense(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        SyncRepository.open(url="memory://", **{field: value})  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("namespace", ["", 0])
def test_open_refuses_a_namespace_that_is_no_name(namespace: object) -> None:
    with pytest.raises(ValidationError):
        SyncRepository.open(namespace, url="memory://")  # type: ignore[arg-type]


def test_types_are_shipped() -> None:
    assert files("zae_limiter").joinpath("py.typed").is_file()


def test_the_version_is_that_of_the_distribution() -> None:
    assert zae_limiter.__version__ == importlib.metadata.version("zae-limiter")


def callables(owner: type) -> Iterator[tuple[str, Any]]:
    """Whatever of a class has a signature, properties and constructors included."""
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        called = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        # Protocols have a constructor of the typing module's.
        is_made = name == "__init__" and getattr(called, "__module__", None) != "typing"
        if inspect.isfunction(called) and (is_made or name[0] != "_"):
            yield name, called


PUBLIC = [zae_limiter, zae_limiter.bucket, zae_limiter.testing, zae_limiter.visualization]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_every_public_annotation_can_be_resolved(module: ModuleType) -> None:
    """Tools that read signatures at run time must not stumble."""
    for exported in module.__all__:
        value = getattr(module, exported)
        if inspect.isclass(value):
            typing.get_type_hints(value)
            for name, called in callables(value):
                hints = typing.get_type_hints(called)
                assert "return" in hints, f"{exported}.{name}"
        elif inspect.isfunction(value):
            assert "return" in typing.get_type_hints(value), exported


def test_annotations_are_resolved_to_what_is_meant() -> None:
    def returned(called: Any) -> Any:
        return typing.get_type_hints(called)["return"]

    assert returned(Repository.builder) is zae_limiter.RepositoryBuilder
    assert returned(SyncRepository.builder) is zae_limiter.SyncRepositoryBuilder
    assert returned(zae_limiter.RepositoryBuilder.build) is Repository
    assert typing.get_type_hints(zae_limiter.Limit.from_bucket_state)["state"] is BucketState
    told = typing.get_type_hints(zae_limiter.RateLimitExceeded.__init__)["statuses"]
    assert typing.get_args(told) == (zae_limiter.LimitStatus,)


@pytest.mark.parametrize("old", ["name", "stack_name", "table_name"])
def test_a_limiter_tells_its_stack_by_old_names_and_warns(old: str) -> None:
    with zae_limiter.SyncRepository.open(url="memory://") as repository:
        limiter = zae_limiter.SyncRateLimiter(repository)
        with pytest.warns(DeprecationWarning, match="repository.stack_name"):
            assert getattr(limiter, old) == repository.stack_name


def test_stores_and_caches_are_the_same_for_both_interfaces() -> None:
    assert zae_limiter.SyncRepositoryProtocol is zae_limiter.RepositoryProtocol
    repository = zae_limiter.SyncRepository.open(url="memory://")
    assert isinstance(repository.scope.local.config_cache, zae_limiter.SyncConfigCache)
