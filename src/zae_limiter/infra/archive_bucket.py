"""The archive of audit events outlives its stack, until it is deleted with everything in it."""

from __future__ import annotations

from typing import Any

from .aws import Aws, error_code, explained


def delete_archive(aws: Aws, stack_name: str, bucket: str) -> int:
    """Delete a bucket and all versions of its objects, and return how many there were. A bucket
    that is gone is no error."""
    with explained(stack_name):
        client = aws["s3"]
        try:
            count = _empty(client, bucket)
            client.delete_bucket(Bucket=bucket)
        except client.exceptions.ClientError as error:
            if error_code(error) != "NoSuchBucket":
                raise
            return 0
    return count


def _empty(client: Any, bucket: str) -> int:
    count = 0
    pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket)
    for page in pages:
        doomed = [
            {"Key": each["Key"], "VersionId": each["VersionId"]}
            for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        ]
        if doomed:
            client.delete_objects(Bucket=bucket, Delete={"Objects": doomed, "Quiet": True})
            count += len(doomed)
    return count
