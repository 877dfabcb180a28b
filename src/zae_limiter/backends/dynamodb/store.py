"""The store in one DynamoDB table: its roles over one client."""

from __future__ import annotations

from ...core.models import BackendCapabilities
from ...core.stats import StoreTraffic
from ...core.versions import UNKNOWN_SCHEMA_VERSION, is_on_the_way
from ...ports.deployment import VersionRecord
from ...ports.io import Io
from .audit import DynamoAudit, Recorder
from .buckets import DynamoBuckets
from .checkpoints import has_checkpoints
from .configs import DynamoConfigs
from .entities import DynamoEntities
from .lifecycle import create_dynamo_table, delete_dynamo_table
from .namespaces import DynamoNamespaces
from .older.old_buckets import OldBuckets
from .older.records import may_hold_old_records
from .opening import Creation, reach
from .receipts import DynamoReceipts
from .table import Table
from .usage import DynamoUsage
from .versions import VERSION_KEY, DynamoVersions
from .wire.connect import open_client
from .wire.credentials import Access
from .wire.edge import Limits
from .wire.endpoint import parse_endpoint


class DynamoStore:
    """All roles over one table."""

    capabilities = BackendCapabilities(
        supports_audit_logging=True,
        supports_usage_snapshots=True,
        supports_batch_operations=True,
    )

    def __init__(self, table: Table) -> None:
        recorder = Recorder(table)
        self.table = table
        self.opened_version: VersionRecord | None = None
        self.buckets = DynamoBuckets(table)
        self.receipts = DynamoReceipts(table, self.buckets)
        self.configs = DynamoConfigs(table, recorder)
        self.entities = DynamoEntities(table, recorder)
        self.namespaces = DynamoNamespaces(table, recorder)
        self.audit = DynamoAudit(table)
        self.usage = DynamoUsage(table)
        self.versions = DynamoVersions(table)
        request = {"TableName": table.name, "Key": VERSION_KEY}
        table.client.probe = ("GetItem", request)

    @property
    def breaker_state(self) -> str:
        """Whether calls are made (closed), or refused because DynamoDB does not answer."""
        return self.table.client.breaker.state

    @classmethod
    async def open(
        cls,
        table_name: str,
        io: Io,
        *,
        blocking: bool,
        region: str | None = None,
        endpoint_url: str | None = None,
        transport: str | None = None,
        limits: Limits | None = None,
        create: Creation = "never",
    ) -> DynamoStore:
        """Open the store in a table. Region, endpoint and credentials that are not given are
        found where AWS keeps them.

        A missing table that is not to be made raises `InfrastructureNotFoundError`.
        `blocking` says whether the driver is the blocking one.
        """
        store = cls.prepare(
            table_name,
            io,
            blocking=blocking,
            region=region,
            endpoint_url=endpoint_url,
            transport=transport,
            limits=limits,
        )
        try:
            record = await reach(store.table, Access(region, endpoint_url), create)
            if record is None and await may_hold_old_records(store.table):
                record = VersionRecord(UNKNOWN_SCHEMA_VERSION)
        except BaseException:
            await store.close()
            raise
        store._heed(record)
        return store

    def _heed(self, record: VersionRecord | None) -> None:
        """Keep the version record, and look for old buckets if the table may hold any."""
        self.opened_version = record
        self.buckets.learn = None
        if record is not None and is_on_the_way(record.schema_version):
            self.buckets.older = self.entities.older = OldBuckets(self.table)

    @classmethod
    def prepare(
        cls,
        table_name: str,
        io: Io,
        *,
        blocking: bool,
        region: str | None = None,
        endpoint_url: str | None = None,
        transport: str | None = None,
        limits: Limits | None = None,
    ) -> DynamoStore:
        """Return the store in a table that was not reached yet: nothing is sent."""
        if endpoint_url is not None:
            parse_endpoint(endpoint_url)
        client = open_client(
            io,
            blocking=blocking,
            region=region,
            endpoint_url=endpoint_url,
            transport=transport,
            limits=limits,
        )
        store = cls(Table(client, table_name))
        store.buckets.learn = store._learn
        return store

    async def _learn(self) -> None:
        self._heed(await self.versions.read())

    async def create_table(self) -> None:
        """Create the table if there is none, and wait until it can be used."""
        await create_dynamo_table(self.table)

    async def delete_table(self) -> None:
        """Delete the table and all that is in it, and wait until it is gone."""
        await delete_dynamo_table(self.table)

    def traffic(self) -> StoreTraffic:
        """The calls and units so far."""
        return self.table.client.meter.traffic()

    async def has_reader(self) -> bool:
        """Whether a Lambda is deployed, or a reader has left a checkpoint."""
        versions = await self.versions.read()
        if versions is not None and versions.lambda_version is not None:
            return True
        return await has_checkpoints(self.table)

    async def ping(self) -> None:
        """Read from the table."""
        await self.table.get(VERSION_KEY)

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        await self.table.client.close()
