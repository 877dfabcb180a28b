"""`zae-limiter cfn-template` and `lambda-export` write what `deploy` would send to AWS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..infra.aggregator_resources import HANDLER
from ..infra.lambda_builder import build_lambda_package
from ..infra.options import StackOptions
from ..infra.provisioner_resources import PROVISIONER_HANDLER
from ..infra.template import build_template, template_text
from ..infra.yaml_text import yaml_text
from .options import examples, json_option
from .output import print_fields, print_json
from .stack_options import deployment_options

_HANDLERS = {"aggregator": HANDLER, "provisioner": PROVISIONER_HANDLER}


@click.command(
    "cfn-template",
    epilog=examples(
        "cfn-template > limiter.yaml",
        "cfn-template --no-iam --no-alarms --json -o limiter.json",
        on_a_store=False,
    ),
)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
)
@click.option("--json", "as_json", is_flag=True, help="JSON without blanks, as deploy sends it.")
@deployment_options
def cfn_template(output: Path | None, as_json: bool, changes: dict[str, Any]) -> None:
    """Print the CloudFormation template of a stack.

    The name of the stack becomes the name of its table. The code of the Lambda is not in the
    template: upload what `zae-limiter lambda-export` writes.
    """
    template = build_template(StackOptions(**changes))
    text = template_text(template) + "\n" if as_json else yaml_text(template)
    if output is None:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")


@click.command(
    "lambda-export",
    epilog=examples("lambda-export -o lambda.zip", "lambda-export --info", on_a_store=False),
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("lambda.zip"),
    show_default=True,
    help="The file to write.",
)
@click.option(
    "--function",
    "function",
    type=click.Choice(list(_HANDLERS)),
    default="aggregator",
    show_default=True,
    help="The Lambda: counts usage, or applies declared limits.",
)
@click.option("--info", is_flag=True, help="Write nothing, and tell what would be written.")
@click.option("--force", "-f", is_flag=True, help="Replace a file that exists.")
@json_option
def lambda_export(output: Path, function: str, info: bool, force: bool, as_json: bool) -> None:
    """Write the zip with the code of a Lambda.

    Equal sources make equal bytes. The zip is pure Python; boto3 is part of Lambda's runtime.
    """
    package = build_lambda_package(_HANDLERS[function])
    if not info:
        if output.exists() and not force:
            raise click.ClickException(f"{output} exists: --force replaces it")
        output.write_bytes(package.content)
    told = {
        "path": None if info else str(output),
        "files": len(package.files),
        "size_bytes": len(package.content),
        "sha256": package.digest,
        "handler": package.handler,
        "runtime": package.runtime,
    }
    if as_json:
        print_json(told)
    else:
        print_fields("Lambda package" if info else f"Wrote {output}", dict(told))
