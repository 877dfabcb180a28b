"""`zae-limiter namespace` manages the tenants of one store, each with data of its own."""

from __future__ import annotations

import re

import click

from ..core.exceptions import EntityNotFoundError, NamespaceNotFoundError
from ..naming import resolve_namespace_name
from .deletion import tell_deletion
from .options import examples, json_option, registry_change_options, registry_options, yes_option
from .output import print_fields, print_json, print_line, print_table
from .patience import patience
from .target import Target

# Eleven URL-safe characters, as clients of the same design make them.
_DASHED_ID = re.compile("-[A-Za-z0-9_-]{10}")


class _IdCommand(click.Command):
    """A command about an id of a namespace, which may begin with a dash if another client made it.
    Without this, such an id would be taken for options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = {text for param in self.params for text in param.opts}
        ids = [each for each in args if _DASHED_ID.fullmatch(each) and each not in options]
        if ids and "--" not in args:
            args = [*(each for each in args if each not in ids), "--", *ids]
        return super().parse_args(ctx, args)


@click.group()
def namespace() -> None:
    """Tenants of one store, each with data of its own."""


@namespace.command(epilog=examples("namespace register tenant-a tenant-b"))
@click.argument("namespaces", nargs=-1, required=True)
@json_option
@registry_change_options
def register(namespaces: tuple[str, ...], as_json: bool, target: Target) -> None:
    """Register one or more names. Names that are registered stay as they are."""
    with target.registry(create=True) as registry:
        ids = registry.register_namespaces(list(namespaces), target.author)
    if as_json:
        print_json(ids)
        return
    for name, namespace_id in ids.items():
        print_line(f"Registered namespace '{name}' (id: {namespace_id})")


@namespace.command("list", epilog=examples("namespace list"))
@json_option
@registry_options
def list_namespaces(as_json: bool, target: Target) -> None:
    """List the namespaces."""
    with target.registry() as registry:
        found = registry.list_namespaces()
    if as_json:
        print_json(found)
    elif not found:
        print_line("No namespaces registered")
    else:
        print_table(
            ["Namespace", "Id", "Created"],
            [(each["name"], each["namespace_id"], each["created_at"]) for each in found],
        )


@namespace.command(epilog=examples("namespace show tenant-a"))
@click.argument("namespace_name")
@json_option
@registry_options
def show(namespace_name: str, as_json: bool, target: Target) -> None:
    """Show a namespace."""
    with target.registry() as registry:
        found = registry.get_namespace(namespace_name)
    if found is None:
        raise NamespaceNotFoundError(namespace_name)
    if as_json:
        print_json(found)
    else:
        fields = {
            "Id": found["namespace_id"],
            "Status": found["status"],
            "Created": found["created_at"],
        }
        print_fields(f"Namespace: {found['name']}", dict(fields))


@namespace.command(epilog=examples("namespace delete tenant-a --yes"))
@click.argument("namespace_name")
@yes_option
@json_option
@registry_change_options
def delete(namespace_name: str, yes: bool, as_json: bool, target: Target) -> None:
    """Free a name. Its data stays until it is purged or recovered."""
    with target.registry() as registry:
        found = registry.get_namespace(namespace_name)
        if found is None:
            raise NamespaceNotFoundError(namespace_name)
        if not yes:
            question = f"{_consequence(namespace_name)}\nDelete it?"
            click.confirm(question, abort=True, err=as_json)
        registry.delete_namespace(namespace_name, target.author)
    if as_json:
        print_json({"deleted": True, "namespace_id": found["namespace_id"]})
        return
    print_line(f"Deleted namespace '{namespace_name}'; its data stays")
    if yes:
        print_line(f"  {_consequence(namespace_name)}")
    typed = _typed(found["namespace_id"])
    click.echo(f"  To undo:            zae-limiter namespace recover {typed}")
    click.echo(f"  To delete for good: zae-limiter namespace purge {typed}")


def _typed(namespace_id: str) -> str:
    """Return an id as an argument. Ids that other clients made may begin with a dash."""
    return f"-- {namespace_id}" if namespace_id.startswith("-") else namespace_id


def _consequence(name: str) -> str:
    """Return what the deletion of a namespace does to those who use it."""
    others = " and of every client that names none" if name == resolve_namespace_name(None) else ""
    return f"'{name}' is the namespace of every client that has it open{others}: they will fail."


@namespace.command(cls=_IdCommand, epilog=examples("namespace recover jT3kQx9aBcE"))
@click.argument("namespace_id")
@json_option
@registry_change_options
def recover(namespace_id: str, as_json: bool, target: Target) -> None:
    """Make a deleted namespace active again."""
    with target.registry() as registry:
        name = registry.recover_namespace(namespace_id, target.author)
    if as_json:
        print_json({"name": name, "namespace_id": namespace_id})
    else:
        print_line(f"Recovered namespace '{name}' (id: {namespace_id})")


@namespace.command(epilog=examples("namespace orphans"))
@json_option
@registry_options
def orphans(as_json: bool, target: Target) -> None:
    """List deleted namespaces whose data still exists."""
    with target.registry() as registry:
        found = registry.list_orphan_namespaces()
    if as_json:
        print_json(found)
    elif not found:
        print_line("No orphan namespaces")
    else:
        print_table(
            ["Id", "Namespace", "Deleted"],
            [(each["namespace_id"], each["namespace"], each["deleted_at"]) for each in found],
        )


@namespace.command(cls=_IdCommand, epilog=examples("namespace purge jT3kQx9aBcE --yes"))
@click.argument("namespace_id")
@yes_option
@json_option
@registry_change_options
def purge(namespace_id: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete all data of a deleted namespace, for good."""
    with target.registry() as registry:
        if not yes:
            question = f"Delete all data of namespace id '{namespace_id}' for good?"
            click.confirm(question, abort=True, err=as_json)
        found = {each["namespace_id"] for each in registry.list_orphan_namespaces()}
        with patience(f"Purging namespace id '{namespace_id}'"):
            registry.purge_namespace(namespace_id, target.author)
    if namespace_id not in found:
        raise EntityNotFoundError(namespace_id, "Namespace id")
    tell_deletion(True, f"Purged namespace id '{namespace_id}'", as_json=as_json)
