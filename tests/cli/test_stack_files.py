"""`cfn-template` and `lambda-export` write what `deploy` would send, without a call to AWS."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from tests.support.cli_runner import Zael
from zae_limiter.infra.lambda_builder import build_lambda_package
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.template import build_template


def test_the_template_is_printed_as_yaml_or_json(zael: Zael) -> None:
    assert yaml.safe_load(zael.out("cfn-template")) == build_template(StackOptions())
    assert zael.json("cfn-template") == build_template(StackOptions())


def test_options_of_deploy_shape_the_template(zael: Zael, tmp_path: Path) -> None:
    path = tmp_path / "limiter.json"
    options = ("--no-alarms", "--lambda-memory", "512", "-t", "team=a=b", "-t", "x=")
    assert zael.out("cfn-template", "--json", "-o", str(path), *options) == ""
    wanted = StackOptions(enable_alarms=False, lambda_memory=512, tags={"team": "a=b", "x": ""})
    assert json.loads(path.read_text()) == build_template(wanted)


def test_options_that_make_no_sense_are_refused(zael: Zael) -> None:
    assert "--create-iam-roles" in zael.error("cfn-template", "--no-iam", "--create-iam-roles")
    assert "KEY=VALUE" in zael.error("cfn-template", "-t", "team", code=2)
    assert "--lambda-memory" in zael.error("cfn-template", "--lambda-memory", "64", code=2)
    assert "--log-retention-days" in zael.error("cfn-template", "--log-retention-days", "2", code=2)


def test_the_zip_is_written_and_never_over_a_file_unasked(zael: Zael, tmp_path: Path) -> None:
    path = tmp_path / "lambda.zip"
    told = zael.json("lambda-export", "-o", str(path))
    package = build_lambda_package()
    assert path.read_bytes() == package.content
    assert told["sha256"] == package.digest
    path.write_text("mine")
    assert "--force" in zael.error("lambda-export", "-o", str(path))
    assert path.read_text() == "mine"
    assert "Wrote" in zael.out("lambda-export", "-o", str(path), "--force")
    assert path.read_bytes() == package.content


def test_the_zip_can_be_described_without_writing_it(zael: Zael, tmp_path: Path) -> None:
    path = tmp_path / "lambda.zip"
    assert "zae_limiter_aggregator.handler.handler" in zael.out(
        "lambda-export", "--info", "-o", str(path)
    )
    assert not path.exists()
