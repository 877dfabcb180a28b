"""The stack manager for asyncio: each call runs in a thread, because boto3 blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ..core.deployed import Status
from .options import StackOptions
from .stack_events import OnEvent
from .sync_stack_manager import SyncStackManager

T = TypeVar("T")


class StackManager:
    """A stack manager deploys one stack: the table, the Lambda that counts usage, policies and
    alarms. Every wait can be interrupted: AWS goes on, and repeating the call goes on from there.

    A table that wants a newer client is left alone, and so is a Lambda of a newer version unless
    `allow_downgrade` is set: both raise `VersionMismatchError` before anything is changed.
    Events are shown from another thread.
    """

    def __init__(
        self,
        stack_name: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        allow_downgrade: bool = False,
    ) -> None:
        self._manager = SyncStackManager(
            stack_name, region, endpoint_url, allow_downgrade=allow_downgrade
        )
        self.stack_name = self._manager.stack_name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, and end what still waits. Closing twice does nothing."""
        await self._run(self._manager.close)

    async def stack_exists(self, stack_name: str | None = None) -> bool:
        """Return whether there is a stack of this name, in whatever state."""
        return await self._run(self._manager.stack_exists, stack_name)

    async def get_stack_status(self, stack_name: str | None = None) -> str | None:
        """Return CloudFormation's status of the stack; None when there is none."""
        return await self._run(self._manager.get_stack_status, stack_name)

    async def get_stack_options(self) -> StackOptions | None:
        """Return the options that the stack was deployed with; None when there is no stack."""
        return await self._run(self._manager.get_stack_options)

    async def get_status(self) -> Status:
        """Return the state of stack, table and versions. Nothing is created or changed."""
        return await self._run(self._manager.get_status)

    async def create_stack(
        self,
        stack_options: StackOptions | None = None,
        wait: bool = True,
        on_event: OnEvent | None = None,
    ) -> dict[str, Any]:
        """Create the stack, or change it to what the options say, and return its id, name and
        status. The status is `unchanged` when there is nothing to do.

        A change that would lose the table's data is refused. A failure is rolled back by
        CloudFormation, and raises `StackOperationError` with the reason of the first resource that
        failed. Without `wait`, the call returns when CloudFormation has begun.
        """
        return await self._run(self._manager.create_stack, stack_options, wait, on_event)

    async def deploy_lambda_code(
        self, function_name: str | None = None, wait: bool = True
    ) -> dict[str, Any]:
        """Upload the aggregator's code, unless the Lambda has it already."""
        return await self._run(self._manager.deploy_lambda_code, function_name, wait)

    async def deploy_provisioner_code(
        self, function_name: str | None = None, wait: bool = True
    ) -> dict[str, Any]:
        """Upload the code that applies declared limits, unless the Lambda has it already."""
        return await self._run(self._manager.deploy_provisioner_code, function_name, wait)

    async def deploy(
        self, stack_options: StackOptions | None = None, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """Create the stack or change it to what the options say, upload the Lambda's code, and
        write the table's first records: versions, the namespace `default`, retention."""
        return await self._run(self._manager.deploy, stack_options, on_event)

    async def complete_stack(self) -> dict[str, Any]:
        """Upload the Lambda's code and write the table's first records, and leave the stack as it
        is: for stacks that CDK or Terraform deploy."""
        return await self._run(self._manager.complete_stack)

    async def upgrade(
        self, changes: Mapping[str, Any] | None = None, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """Bring the stack to this version, with the options that it has and these changes."""
        return await self._run(self._manager.upgrade, changes, on_event)

    async def delete_stack(
        self,
        stack_name: str | None = None,
        wait: bool = True,
        delete_archive: bool = False,
        on_event: OnEvent | None = None,
    ) -> dict[str, Any]:
        """Delete the stack with its table, and return the archive that is left, if one is.

        A stack that does not exist is no error. `delete_archive` deletes the archived audit events,
        too, also those of a stack that is gone already. `stack_name`, if given, must be the name of
        this manager's stack.
        """
        delete = self._manager.delete_stack
        return await self._run(delete, stack_name, wait, delete_archive, on_event)

    async def get_archive_bucket(self) -> str | None:
        """Return the bucket with archived audit events, of the stack or of the one that was
        deleted last; None when it had none. The bucket may be deleted, too."""
        return await self._run(self._manager.get_archive_bucket)

    async def _run(self, call: Callable[..., T], *args: Any) -> T:
        try:
            return await asyncio.to_thread(call, *args)
        except asyncio.CancelledError:
            # Without this, the event loop could not end before CloudFormation has.
            self._manager.close()
            raise
