"""An archive in a bucket of S3, through boto3."""

from __future__ import annotations

from typing import Any

from ..core.exceptions import StorageUnavailable
from ..ports.archive import ArchiveObject
from ..ports.io import Io

_TIMEOUT_S = 5
_ATTEMPTS = {"total_max_attempts": 2, "mode": "standard"}


class S3Archive:
    """Objects in one bucket. Region, endpoint and credentials are found where AWS keeps them."""

    def __init__(self, io: Io, bucket: str, client: Any = None) -> None:
        self._io = io
        self._bucket = bucket
        self._client = client

    async def put(self, archived: ArchiveObject) -> None:
        await self._io.offload(lambda: self._put(archived))

    def _put(self, archived: ArchiveObject) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._opened().put_object(
                Bucket=self._bucket,
                Key=archived.key,
                Body=archived.content,
                ContentType="application/x-ndjson",
                ContentEncoding="gzip",
            )
        except (BotoCoreError, ClientError) as error:
            raise StorageUnavailable(f"S3 did not take {archived.key}: {error}", error) from error

    def _opened(self) -> Any:
        """Importing boto3 takes long, and most batches have nothing to archive."""
        if self._client is None:
            import boto3
            from botocore.config import Config

            # By default an archive that is silent would hold up the reader for five minutes.
            patience = Config(
                connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries=_ATTEMPTS
            )
            self._client = boto3.client("s3", config=patience)
        return self._client
