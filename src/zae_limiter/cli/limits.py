"""`zae-limiter limits` manages limits that a manifest declares."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import click

from ..core.exceptions import ManifestConflictError
from ..core.manifest import Manifest, manifest_to_dict
from ..core.manifest_plan import ManifestPlan
from ..core.validation import validate_stack_name
from ..flows.admin.provision import AppliedCounts, apply_plan, export_manifest, plan_manifest
from ..infra.limits_template import build_limits_template
from ..infra.template import template_text
from ..infra.yaml_text import yaml_text
from ..manifest_file import dump_manifest
from ..runtime.blocking import run
from .manifest_options import aimed, is_from_stdin, manifest_argument
from .options import change_options, examples, json_option, store_options, yes_option
from .output import print_json, print_lines
from .plan_report import plan_lines, plan_summary, plan_to_dict
from .progress import progress_on_stderr
from .simulate import simulate
from .stack_place import name_option
from .target import Target

_FORCE_HINT = (
    "Hint: `limits diff` shows the differences. `limits apply --force` undoes what others did;\n"
    "`limits export` writes a manifest of what is stored now."
)


@click.group()
def limits() -> None:
    """Limits and entities declared in a file."""


limits.add_command(simulate)


@limits.command(epilog=examples("limits validate examples/limits.yaml", on_a_store=False))
@manifest_argument
@json_option
def validate(manifest: Manifest, as_json: bool) -> None:
    """Check a manifest, without a store. Every error is listed with its line and column."""
    entities = {slot.entity_id for slot in manifest.configs} - {None} | manifest.entities.keys()
    counted = {
        "namespace": manifest.namespace,
        "records": len(manifest.configs),
        "entities": len(entities),
    }
    if as_json:
        print_json(counted)
    else:
        records = f"{counted['records']} record(s) of limits, {counted['entities']} entities"
        print_lines([f"Valid: {records}, for namespace '{manifest.namespace}'"])


@limits.command(epilog=examples("limits schema > limits.schema.json", on_a_store=False))
def schema() -> None:
    """Print the JSON Schema of manifests, for editors."""
    text = files(__package__.partition(".")[0]).joinpath("limits-manifest.schema.json").read_text()
    print_json(json.loads(text))


_quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print the summary only.")


@limits.command(epilog=examples("limits plan examples/limits.yaml"))
@manifest_argument
@_quiet_option
@json_option
@store_options
def plan(manifest: Manifest, quiet: bool, as_json: bool, target: Target) -> None:
    """Show what `limits apply` would change. Nothing is changed.

    `-N` compares with another namespace than the manifest names.
    """
    target = aimed(target, manifest)
    planned = _plan(target, manifest)
    if as_json:
        print_json(plan_to_dict(target.namespace, planned))
        return
    if not quiet:
        print_lines(plan_lines(planned))
    print_lines([plan_summary(target.namespace, planned)])


def _plan(target: Target, manifest: Manifest) -> ManifestPlan:
    with target.connect() as repository:
        return run(plan_manifest(repository.scope, manifest))


@limits.command(epilog=examples("limits diff examples/limits.yaml || echo they differ"))
@manifest_argument
@_quiet_option
@json_option
@store_options
def diff(manifest: Manifest, quiet: bool, as_json: bool, target: Target) -> None:
    """Compare a manifest with what is stored. The exit code is 1 if they differ."""
    target = aimed(target, manifest)
    found = _plan(target, manifest)
    if as_json:
        print_json(plan_to_dict(target.namespace, found))
    elif not quiet:
        print_lines(plan_lines(found))
    if found.changes or found.conflicts:
        raise click.exceptions.Exit(1)


@limits.command(epilog=examples("limits apply examples/limits.yaml --principal alice"))
@manifest_argument
@click.option("--force", is_flag=True, help="Undo what others changed in the meantime.")
@_quiet_option
@yes_option
@json_option
@change_options
def apply(
    manifest: Manifest, force: bool, quiet: bool, yes: bool, as_json: bool, target: Target
) -> None:
    """Make the store agree with a manifest.

    Records that are declared no longer are deleted, if a manifest made them. Records that others
    have changed are left alone, and so is all the rest, unless --force is given. An apply that was
    interrupted goes on where it ended. Entities are never deleted.
    """
    target = aimed(target, manifest)
    with target.open() as repository:
        planned = run(plan_manifest(repository.scope, manifest))
        if not quiet and not as_json:
            print_lines(plan_lines(planned))
        doomed = 0 if planned.drifted and not force else planned.count("delete")
        if yes or not doomed or _may_delete(doomed, as_json=as_json):
            applied = _apply(target, repository.scope, planned, force=force)
        else:
            applied = None
    if as_json:
        print_json({"namespace": target.namespace, **asdict(applied or AppliedCounts())})
    elif applied is None:
        click.echo("Cancelled")
    else:
        counts = ", ".join(f"{count} {name}" for name, count in asdict(applied).items())
        print_lines([f"Applied to namespace '{target.namespace}': {counts}"])


def _may_delete(doomed: int, *, as_json: bool) -> bool:
    if is_from_stdin():
        raise click.UsageError("A manifest from standard input leaves no room to ask: give --yes.")
    return click.confirm(f"Delete {doomed} record(s) of limits?", err=as_json)


def _apply(target: Target, scope: Any, planned: ManifestPlan, *, force: bool) -> AppliedCounts:
    try:
        return run(
            apply_plan(
                scope,
                planned,
                target.author,
                force=force,
                progress=progress_on_stderr("Applied"),
            )
        )
    except ManifestConflictError as error:
        hint = [_FORCE_HINT] if error.can_force else []
        raise click.ClickException("\n".join([*error.conflicts, *hint])) from error


@limits.command(epilog=examples("limits export > limits.yaml"))
@json_option
@store_options
def export(as_json: bool, target: Target) -> None:
    """Write a manifest of all limits and entities that are stored."""
    with target.connect() as repository:
        manifest = run(export_manifest(repository.scope, target.namespace))
    if as_json:
        print_json(manifest_to_dict(manifest))
    else:
        click.echo(dump_manifest(manifest), nl=False)


@limits.command(
    "cfn-template",
    epilog=examples(
        "limits cfn-template examples/limits.yaml -n my-app > stack.yaml",
        on_a_store=False,
    ),
)
@manifest_argument
@name_option(named=True)
@click.option("--force", is_flag=True, help="Let the stack undo what others changed.")
@click.option("--json", "as_json", is_flag=True, help="JSON without blanks.")
def limits_template(manifest: Manifest, name: str, force: bool, as_json: bool) -> None:
    """Print a CloudFormation template of declared limits.

    The template has one resource, which the Lambda of the limiter's stack looks after: creating,
    updating and deleting the stack applies the limits as `limits apply` does.
    """
    template = build_limits_template(validate_stack_name(name), manifest, force=force)
    click.echo(template_text(template) + "\n" if as_json else yaml_text(template), nl=False)
