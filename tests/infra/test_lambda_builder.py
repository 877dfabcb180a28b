"""The Lambda's zip is made of the same bytes everywhere, and needs nothing that is not in it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from zae_limiter.infra.aggregator_resources import HANDLER
from zae_limiter.infra.lambda_builder import LambdaPackage, build_lambda_package
from zae_limiter.infra.provisioner_resources import PROVISIONER_HANDLER

SOURCES = Path(__file__).parents[2] / "src"
RUNTIME_BRINGS = {"boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3"}
OURS = {"zae_limiter", "zae_limiter_aggregator", "zae_limiter_provisioner"}
HIDDEN = sorted(packages_distributions().keys() - RUNTIME_BRINGS - OURS)


@pytest.fixture(scope="module", params=[HANDLER, PROVISIONER_HANDLER])
def package(request: pytest.FixtureRequest) -> LambdaPackage:
    return build_lambda_package(request.param)


def test_another_process_elsewhere_builds_equal_bytes(
    package: LambdaPackage, tmp_path: Path
) -> None:
    code = (
        "from zae_limiter.infra.lambda_builder import *;"
        f" print(build_lambda_package({package.handler!r}).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    environment["PYTHONPATH"] = str(SOURCES)
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == package.digest


def test_the_zip_holds_sorted_readable_sources_without_a_time(package: LambdaPackage) -> None:
    with zipfile.ZipFile(io.BytesIO(package.content)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(package.files)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 & 0o777 for entry in entries} == {0o644}
    assert all(name.endswith(".py") for name in package.files)


def test_the_zip_leaves_out_what_a_handler_never_imports(package: LambdaPackage) -> None:
    own = package.handler.split(".")[0]
    assert f"{own}/handler.py" in package.files
    assert {name.split("/")[0] for name in package.files} == {"zae_limiter", own}
    assert "zae_limiter/backends/dynamodb/wire/socket_edge.py" in package.files
    for folder in ("cli", "infra", "testing", "visualization"):
        assert not [name for name in package.files if f"zae_limiter/{folder}/" in name], folder


def test_the_handler_is_imported_from_the_zip_alone(package: LambdaPackage, tmp_path: Path) -> None:
    path = tmp_path / "lambda.zip"
    path.write_bytes(package.content)
    module, _, name = package.handler.rpartition(".")
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r})\n"
        f"import importlib, zae_limiter; found = importlib.import_module({module!r})\n"
        f"assert callable(found.{name})\n"
        f"print(found.__file__, zae_limiter.__file__)"
    )
    # Neither the environment nor the packages that are installed can be seen.
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert all(place.startswith(str(path)) for place in said.stdout.split())


def test_every_module_that_the_handler_loads_is_in_the_zip(package: LambdaPackage) -> None:
    module = package.handler.rpartition(".")[0]
    code = f"import {module}, sys; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in said.stdout.split() if name.split(".")[0].startswith("zae_limiter")}
    packed = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for name in package.files
    }
    assert loaded <= packed


def test_every_module_of_the_zip_is_imported_with_boto3_alone(
    package: LambdaPackage, tmp_path: Path
) -> None:
    """Lambda's runtime brings boto3 and what boto3 needs; whatever else is installed is hidden."""
    path = tmp_path / "lambda.zip"
    path.write_bytes(package.content)
    code = f"""
import importlib, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HIDDEN!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
sys.path.insert(0, {str(path)!r})
for name in {package.files!r}:
    module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    assert importlib.import_module(module).__file__.startswith({str(path)!r}), module
"""
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
