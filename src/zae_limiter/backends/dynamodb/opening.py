"""A store is opened by reaching its table, or with an error that says why not and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...core.exceptions import InfrastructureNotFoundError, StorageUnavailable, StoredDataError
from ...ports.deployment import VersionRecord
from .lifecycle import create_dynamo_table
from .table import Table
from .versions import DynamoVersions
from .wire.credentials import Access
from .wire.errors import RequestInvalid, ResourceMissing, WireError

Creation = Literal["never", "elsewhere", "always"]
"""The places where a missing table is created; elsewhere is anywhere but at AWS itself."""


@dataclass(frozen=True, slots=True)
class Site:
    """The site where a table is looked for."""

    host: str
    region: str
    is_aws: bool

    def __str__(self) -> str:
        return f"{self.host} (region {self.region})"


def find_site(access: Access) -> Site:
    """Return the site that arguments, environment and profile name. May block."""
    grant = access.obtain()
    host = grant.endpoint.host
    return Site(host, grant.region, host.partition(":")[0].endswith(_aws_domains(access)))


def _aws_domains(access: Access) -> tuple[str, ...]:
    """Return the domains of every partition that botocore knows."""
    known = access.session().get_component("data_loader").load_data("partitions")
    outputs = [partition["outputs"] for partition in known["partitions"]]
    return tuple(f".{each[name]}" for each in outputs for name in _SUFFIXES if name in each)


_SUFFIXES = ("dnsSuffix", "dualStackDnsSuffix")


async def reach(table: Table, access: Access, create: Creation) -> VersionRecord | None:
    """Return the table's version record. A missing table is created, if that is asked for."""
    versions = DynamoVersions(table)
    try:
        return await versions.read()
    except RequestInvalid as error:
        raise StoredDataError(f"table {table.name}", f"it is not a limiter's ({error})") from error
    except StorageUnavailable as error:
        site = await table.io.offload(lambda: find_site(access))
        if not isinstance(error.cause, ResourceMissing):
            raise _explained(error, table.name, site) from error
        if create == "never" or (create == "elsewhere" and site.is_aws):
            raise _missing(table.name, site) from error
        await create_dynamo_table(table)
    return await versions.read()


def _missing(table_name: str, site: Site) -> InfrastructureNotFoundError:
    command = f"zae-limiter deploy --name {table_name} --region {site.region}"
    if not site.is_aws:
        command += " --endpoint-url URL"
    return InfrastructureNotFoundError(
        table_name,
        f"there is no such table at {site}. If that is the right place, deploy it with `{command}`,"
        " or let Repository.open(create=True) make it",
    )


def _explained(error: StorageUnavailable, table_name: str, site: Site) -> StorageUnavailable:
    """Return the failure with the site where it happened."""
    question = "" if isinstance(error.cause, WireError) else "Is this the right region? "
    return StorageUnavailable(
        f"Cannot open table '{table_name}' at {site}. {question if site.is_aws else ''}{error}",
        error.cause,
        retryable=error.retryable,
        ambiguous=error.ambiguous,
        is_outage=error.is_outage,
    )
