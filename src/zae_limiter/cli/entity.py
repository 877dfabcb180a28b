"""`zae-limiter entity` manages entities, and limits of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import click

from ..core.exceptions import EntityNotFoundError
from ..core.limit import Limit
from ..core.models import Entity
from ..flows.admin.audit import MAX_PAGE
from ..flows.admin.entities import delete_entity
from ..flows.admin.limits import entity_slot
from ..runtime.blocking import run
from ..sync_repository import SyncRepository
from .deletion import delete_level, tell_deletion
from .hidden import warn_of_hidden
from .options import (
    change_options,
    config_resource_option,
    examples,
    inherit_option,
    json_option,
    limits_option,
    store_options,
    yes_option,
)
from .output import print_fields, print_json, print_limits, print_line, print_lines, print_table
from .patience import patience
from .target import Target

_PAGE = 100


@click.group()
def entity() -> None:
    """Entities, and limits of their own."""


def _read_pairs(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter("must be KEY=VALUE")
    return {key: value for key, _, value in pairs}


_metadata_option = click.option(
    "--metadata",
    "-m",
    multiple=True,
    callback=_read_pairs,
    metavar="KEY=VALUE",
    help="Free text to keep with the entity. Repeat for several.",
)


@entity.command(
    epilog=examples(
        "entity create acme",
        "entity create key-1 --parent acme --cascade",
    )
)
@click.argument("entity_id")
@click.option("--display-name", "name", help="A name for people; by default the id.")
@click.option("--parent", "parent_id", help="The id of the parent.")
@click.option(
    "--cascade/--no-cascade", default=False, help="Charge its acquires to its parent too."
)
@_metadata_option
@click.option("--exist-ok", is_flag=True, help="Succeed if it exists with this parent and cascade.")
@json_option
@change_options
def create(
    entity_id: str,
    name: str | None,
    parent_id: str | None,
    cascade: bool,
    metadata: dict[str, str],
    exist_ok: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Store a new entity. The parent need not exist yet."""
    with target.open() as repository:
        created = repository.create_entity(
            entity_id,
            name,
            parent_id,
            cascade,
            metadata or None,
            exist_ok=exist_ok,
            principal=target.author,
        )
    if as_json:
        print_json(asdict(created))
    else:
        _print_entity(f"Created entity '{created.id}'", created)


def _print_entity(title: str, found: Entity) -> None:
    pairs = ", ".join(f"{key}={_shown(value)}" for key, value in sorted(found.metadata.items()))
    print_fields(
        title,
        {
            "Name": found.name,
            "Parent": found.parent_id,
            "Cascade": "yes" if found.cascade else "no",
            "Metadata": pairs or None,
            "Created": found.created_at,
            "Version": found.version,
        },
    )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@entity.command(epilog=examples("entity show key-1"))
@click.argument("entity_id")
@json_option
@store_options
def show(entity_id: str, as_json: bool, target: Target) -> None:
    """Show an entity."""
    with target.connect() as repository:
        found = _require(repository, entity_id)
    if as_json:
        print_json(asdict(found))
    else:
        _print_entity(f"Entity: {found.id}", found)


def _require(repository: SyncRepository, entity_id: str) -> Entity:
    found = repository.get_entity(entity_id)
    if found is None:
        raise EntityNotFoundError(entity_id)
    return found


@entity.command(epilog=examples("entity update key-1 -m tier=gold -m trial="))
@click.argument("entity_id")
@click.option("--display-name", "name", help="A new name for people.")
@_metadata_option
@click.option(
    "--expected-version", type=int, help="Refuse if the entity has changed since this version."
)
@json_option
@change_options
def update(
    entity_id: str,
    name: str | None,
    metadata: dict[str, str],
    expected_version: int | None,
    as_json: bool,
    target: Target,
) -> None:
    """Change an entity's name or metadata. Other metadata stays; `-m KEY=` removes a key."""
    if name is None and not metadata:
        raise click.UsageError("Nothing to change: give --display-name or --metadata.")
    with target.connect() as repository:
        stored = _require(repository, entity_id)
        changed = repository.update_entity(
            entity_id,
            name=name,
            metadata={k: v for k, v in {**stored.metadata, **metadata}.items() if v != ""},
            expected_version=stored.version if expected_version is None else expected_version,
            principal=target.author,
        )
    if as_json:
        print_json(asdict(changed))
    else:
        _print_entity(f"Updated entity '{entity_id}'", changed)


@entity.command(epilog=examples("entity delete key-1 --yes"))
@click.argument("entity_id")
@yes_option
@json_option
@change_options
def delete(entity_id: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete an entity with its limits, buckets and usage. Its audit events stay."""
    with target.connect() as repository:
        existed = repository.get_entity(entity_id) is not None
        if not yes:
            question = f"Delete entity '{entity_id}' with its limits, buckets and usage?"
            click.confirm(question, abort=True, err=as_json)
        with patience(f"Deleting entity '{entity_id}'"):
            deleted = run(delete_entity(repository.scope, entity_id, target.author))
    told = f"Deleted entity '{entity_id}'"
    if not existed:
        rest = "deleted what else was stored for it" if deleted else "nothing was deleted"
        told = f"No entity '{entity_id}'; {rest}"
    tell_deletion(deleted > 0, told, as_json=as_json)


@entity.command(epilog=examples("entity children acme"))
@click.argument("parent_id")
@json_option
@store_options
def children(parent_id: str, as_json: bool, target: Target) -> None:
    """List the entities that have this parent."""
    with target.connect() as repository:
        found = repository.get_children(parent_id)
    if as_json:
        print_json([asdict(child) for child in found])
    elif not found:
        print_line(f"No children of entity '{parent_id}'")
    else:
        print_table(
            ["Entity", "Name", "Cascade", "Created"],
            [(c.id, c.name, "yes" if c.cascade else "no", c.created_at) for c in found],
        )


@entity.command(
    "set-limits",
    epilog=examples("entity set-limits key-1 -r gpt-4 -l rpm:100 -l tpm:10000:20000"),
)
@click.argument("entity_id")
@config_resource_option
@limits_option
@inherit_option
@json_option
@change_options
def set_limits(
    entity_id: str,
    resource: str,
    limits: tuple[Limit, ...],
    inherit: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Give an entity limits of its own; they replace the limits it had."""
    with target.open() as repository:
        repository.set_limits(entity_id, list(limits), resource, target.author, inherit=inherit)
        if not inherit:
            warn_of_hidden(repository, entity_slot(entity_id, resource), limits)
    if as_json:
        stored = [limit.to_dict() for limit in limits]
        subject = {"entity_id": entity_id, "resource": resource}
        print_json({**subject, "limits": stored, "inherit": inherit})
        return
    print_line(f"Set {len(limits)} limit(s) for entity '{entity_id}' (resource '{resource}'):")
    print_limits(limits)


@entity.command("get-limits", epilog=examples("entity get-limits key-1 -r gpt-4"))
@click.argument("entity_id")
@config_resource_option
@json_option
@store_options
def get_limits(entity_id: str, resource: str, as_json: bool, target: Target) -> None:
    """Show an entity's own limits."""
    with target.connect() as repository:
        limits = repository.get_limits(entity_id, resource)
    if as_json:
        print_json([limit.to_dict() for limit in limits])
    elif not limits:
        print_line(f"No limits configured for entity '{entity_id}' (resource '{resource}')")
    else:
        print_line(f"Limits for entity '{entity_id}' (resource '{resource}'):")
        print_limits(limits)


@entity.command(
    "delete-limits",
    epilog=examples("entity delete-limits key-1 -r gpt-4 --yes"),
)
@click.argument("entity_id")
@config_resource_option
@yes_option
@json_option
@change_options
def delete_limits(entity_id: str, resource: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete an entity's own limits: the next level decides again."""
    what = f"limits for entity '{entity_id}' (resource '{resource}')"
    delete_level(target, entity_slot(entity_id, resource), what, yes=yes, as_json=as_json)


@entity.command(
    "list",
    epilog=examples(
        "entity list --parent acme",
        "entity list --prefix key- --limit 50 --after key-1",
        "entity list --with-custom-limits gpt-4",
    ),
)
@click.option("--prefix", default="", help="Only ids that start with this.")
@click.option("--parent", "parent_id", help="Only entities with this parent.")
@click.option(
    "--with-custom-limits",
    "resource",
    metavar="RESOURCE",
    help="The ids of all entities with limits of their own for a resource.",
)
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), help="How many at most; 100 if not set.")
@click.option("--after", "cursor", help="Only ids after this one, as the page before told it.")
@json_option
@store_options
def list_entities(
    prefix: str,
    parent_id: str | None,
    resource: str | None,
    limit: int | None,
    cursor: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """List the entities that were created, sorted by id.

    With --with-custom-limits, list ids instead, created or not, to the end: --limit is then how
    many are fetched at a time.
    """
    if resource is not None:
        if prefix or parent_id or cursor:
            raise click.UsageError("--with-custom-limits goes with --limit only.")
        _list_ids(resource, limit, as_json, target)
        return
    with target.connect() as repository:
        found, following = repository.list_entities(prefix, parent_id, limit or _PAGE, cursor)
    if as_json:
        print_json({"entities": [asdict(each) for each in found], "next_cursor": following})
    elif not found:
        print_line("No entities")
    else:
        _print_entities(found)
        if following is not None:
            print_line(f"There is more: --after {following}")


def _print_entities(found: list[Entity]) -> None:
    print_table(
        ["Entity", "Name", "Parent", "Cascade", "Created"],
        [
            (e.id, e.name or "-", e.parent_id or "-", "yes" if e.cascade else "no", e.created_at)
            for e in found
        ],
    )


def _list_ids(resource: str, limit: int | None, as_json: bool, target: Target) -> None:
    with target.connect() as repository:
        found = list(_all_pages(repository, resource, limit))
    if as_json:
        print_json(found)
    elif not found:
        print_line(f"No entities with custom limits for resource '{resource}'")
    else:
        print_lines(found)


def _all_pages(repository: SyncRepository, resource: str, limit: int | None) -> Iterator[str]:
    cursor: str | None = None
    while True:
        page, cursor = repository.list_entities_with_custom_limits(resource, limit, cursor)
        yield from page
        if cursor is None:
            return


@entity.command("list-resources", epilog=examples("entity list-resources"))
@json_option
@store_options
def list_resources(as_json: bool, target: Target) -> None:
    """List the resources for which some entity has limits of its own."""
    with target.connect() as repository:
        found = repository.list_resources_with_entity_configs()
    if as_json:
        print_json(found)
    elif not found:
        print_line("No resources with entity limits")
    else:
        print_lines(found)
