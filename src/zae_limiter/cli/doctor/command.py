"""`zae-limiter doctor` carries out all checks and prints what was found."""

from __future__ import annotations

import sys

import click

from ...backends.dynamodb.url import DynamoUrl
from ...backends.store_url import OpenRequest, StoreUrl
from ...backends.urls import parse_url
from ...core.exceptions import NamespaceNotFoundError, ZAELimiterError
from ...flows.admin import namespaces
from ...flows.scope import Scope
from ...ports.repository_protocol import RepositoryProtocol
from ...runtime.blocking import BlockingIo, run
from ..options import examples, json_option, store_options
from ..output import print_json, print_lines
from ..target import Target
from .finding import Finding, guarded
from .unopened import unopened

_MAX_BUCKETS = 10_000
# The longest state and a blank.
_MARGIN = 9
_RESTORE = "Look at this record, and restore it from a backup."
_ALLOW = "Check that the store answers, and the permissions of these credentials."


@click.command(epilog=examples("doctor", "doctor --json"))
@click.option(
    "--buckets",
    "at_most",
    type=click.IntRange(0),
    default=_MAX_BUCKETS,
    show_default=True,
    help="How many bucket items, entities and limits to read at most.",
)
@json_option
@store_options
def doctor(at_most: int, as_json: bool, target: Target) -> None:
    """Check what a limiter stands on, and say what to mend.

    Credentials, table or file, stream, who counts usage, clock, versions, records and buckets of
    the namespace. Nothing is created or changed. The exit code is 1 when there is a problem.
    """
    target.require_shared()
    found = run(_examine(parse_url(target.url), target.namespace, at_most))
    healthy = all(finding.state != "problem" for finding in found)
    if as_json:
        print_json({"healthy": healthy, "findings": [finding.to_dict() for finding in found]})
    else:
        _print(found)
    sys.exit(0 if healthy else 1)


async def _examine(url: StoreUrl, namespace: str, at_most: int) -> list[Finding]:
    found: list[Finding] = []
    if isinstance(url, DynamoUrl):
        from .table_checks import check_credentials

        found.append(check_credentials(url))
        if found[0].state == "problem":
            return found
    io = BlockingIo()
    try:
        store = await url.open(io, OpenRequest(create=False))
    except ZAELimiterError as error:
        await io.close()
        return [*found, *unopened(url, error)]
    try:
        found += await _of_store(url, store)
        found += await _of_namespace(store, io, namespace, at_most)
    finally:
        await store.close()
        await io.close()
    return found


async def _of_store(url: StoreUrl, store: RepositoryProtocol) -> list[Finding]:
    from .store_checks import check_file, check_versions

    found = await guarded("versions", _RESTORE, check_versions(store))
    if isinstance(url, DynamoUrl):
        return found + await _of_table(url, store)
    from ...backends.sqlite.store import SqliteStore
    from ...backends.sqlite.url import SqliteUrl

    if isinstance(store, SqliteStore) and isinstance(url, SqliteUrl):
        found += await guarded("file", _RESTORE, check_file(store, url.path))
    return found


async def _of_table(url: DynamoUrl, store: RepositoryProtocol) -> list[Finding]:
    from ...backends.dynamodb.store import DynamoStore
    from .table_checks import check_skew, check_table

    assert isinstance(store, DynamoStore)
    fix = "A role that may acquire need not be allowed to describe the table."
    return [check_skew(store), *await guarded("table", fix, check_table(store, url))]


async def _of_namespace(
    store: RepositoryProtocol, io: BlockingIo, name: str, at_most: int
) -> list[Finding]:
    from .store_checks import check_buckets, check_records

    try:
        record = await namespaces.find(store, name)
    except NamespaceNotFoundError as error:
        fix = f"`zae-limiter namespace register {name}` makes it."
        return [Finding("namespace", "problem", str(error), fix)]
    except ZAELimiterError as error:
        return [Finding("namespace", "problem", str(error), _RESTORE)]
    scope = Scope(store, io, record.namespace_id)
    return [
        Finding("namespace", "ok", f"{record.name} ({record.namespace_id})"),
        *await guarded("records", _ALLOW, check_records(scope, at_most)),
        *await guarded("buckets", _ALLOW, check_buckets(scope, at_most)),
    ]


def _print(found: list[Finding]) -> None:
    width = max(len(finding.check) for finding in found)
    for finding in found:
        fix = [f"{'':<{_MARGIN}}Fix: {finding.fix}"] if finding.fix else []
        line = f"{finding.state:<{_MARGIN}}{finding.check:<{width}}  {finding.message}"
        print_lines([line, *fix], hang=_MARGIN)
    problems = sum(finding.state == "problem" for finding in found)
    warnings = sum(finding.state == "warning" for finding in found)
    print_lines([f"{problems} problem(s), {warnings} warning(s)"])
