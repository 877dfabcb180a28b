"""A stack is created, changed and deleted here; each step can be repeated after an interruption.

deploy     template (change set), code of the Lambda, first records of the table
upgrade    the same, from the options that the stack has: permissions and settings come
           before the code that needs them, and the version record comes last
delete     the stack, then its archive if that is asked for
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ..core.deployed import Status
from ..core.exceptions import InfrastructureNotFoundError, StackOperationError, ValidationError
from ..core.validation import validate_stack_name
from .archive_bucket import delete_archive
from .aws import Aws, explained
from .change_sets import ChangeKind, ChangeSet, execute, plan_changes, was_overtaken
from .iam_resources import kept_descriptions
from .lambda_builder import build_lambda_package
from .lambda_code import (
    aggregator_name,
    provisioner_name,
    starting_position,
    upload_aggregator,
    upload_code,
)
from .options import StackOptions
from .provisioner_resources import PROVISIONER_HANDLER
from .stack_events import OnEvent, StackWatch
from .stack_reading import (
    FUNCTION_OUTPUT,
    PROVISIONER_OUTPUT,
    Stack,
    describe_stack,
    described_table,
    last_deleted_stack,
    read_options,
    read_status,
    read_template,
)
from .table_resource import kept_shape
from .table_setup import require_deployable_table, set_up_table
from .tags import is_limiter, stack_tags
from .template import STARTING_POSITION, build_template

_OVERTAKEN_WAITS_S = (0.5, 2.0, 5.0)
_ARCHIVE_OUTPUT = "AuditArchiveBucketName"


class SyncStackManager:
    """A stack manager deploys one stack: the table, the Lambda that counts usage, policies and
    alarms. Every wait can be interrupted: AWS goes on, and repeating the call goes on from there.

    A table that wants a newer client is left alone, and so is a Lambda of a newer version unless
    `allow_downgrade` is set: both raise `VersionMismatchError` before anything is changed.
    """

    def __init__(
        self,
        stack_name: str,
        region: str | None = None,
        endpoint_url: str | None = None,
        *,
        allow_downgrade: bool = False,
    ) -> None:
        self.stack_name = validate_stack_name(stack_name, "stack_name")
        self._allow_downgrade = allow_downgrade
        self._aws = Aws(region, endpoint_url)
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end what still waits. Closing twice does nothing."""
        self._stopped.set()
        self._stopped = threading.Event()
        self._aws.close()

    def stack_exists(self, stack_name: str | None = None) -> bool:
        """Return whether there is a stack of this name, in whatever state."""
        self._require_own(stack_name)
        return describe_stack(self._aws, self.stack_name) is not None

    def get_stack_status(self, stack_name: str | None = None) -> str | None:
        """Return CloudFormation's status of the stack; None when there is none."""
        self._require_own(stack_name)
        stack = describe_stack(self._aws, self.stack_name)
        return None if stack is None else stack.status

    def get_stack_options(self) -> StackOptions | None:
        """Return the options that the stack was deployed with; None when there is no stack."""
        stack = describe_stack(self._aws, self.stack_name)
        if stack is None or stack.is_remains or stack.is_planned:
            return None
        return read_options(self._aws, stack)

    def get_status(self) -> Status:
        """Return the state of stack, table and versions. Nothing is created or changed."""
        return read_status(self._aws, self.stack_name)

    def create_stack(
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
        options = stack_options or StackOptions()
        options.check_names(self.stack_name)
        for wait_s in _OVERTAKEN_WAITS_S:
            try:
                return self._change(options, wait, on_event)
            except StackOperationError as error:
                if not was_overtaken(error):
                    raise
            # Another deployer was faster. Its work is waited for, and the rest planned anew.
            self._stopped.wait(wait_s)
        return self._change(options, wait, on_event)

    def _change(
        self, options: StackOptions, wait: bool, on_event: OnEvent | None
    ) -> dict[str, Any]:
        self._settled(on_event)
        # The table is looked for before the stack, and after a deletion that was under way: one
        # that another deployer's stack makes has a stack then, and one that goes with its stack
        # is gone.
        table = described_table(self._aws, self.stack_name)
        stack = self._settled(on_event)
        with explained(self.stack_name):
            planned = self._plan(stack, table, options)
            if planned is None:
                return self._result("" if stack is None else stack.stack_id, "unchanged")
            watch = self._watch(planned.stack_id, on_event)
            execute(self._aws["cloudformation"], planned)
            status = watch.wait() if wait else "started"
        left = {} if stack is None or options.deploys_archive else self._leave_archive(stack)
        return {**self._result(planned.stack_id, status), **left}

    def deploy_lambda_code(
        self, function_name: str | None = None, wait: bool = True
    ) -> dict[str, Any]:
        """Upload the aggregator's code, unless the Lambda has it already."""
        self._require_function(function_name, aggregator_name(self.stack_name))
        return upload_aggregator(self._aws, self.stack_name, build_lambda_package(), wait=wait)

    def deploy_provisioner_code(
        self, function_name: str | None = None, wait: bool = True
    ) -> dict[str, Any]:
        """Upload the code that applies declared limits, unless the Lambda has it already."""
        name = provisioner_name(self.stack_name)
        self._require_function(function_name, name)
        package = build_lambda_package(PROVISIONER_HANDLER)
        return upload_code(self._aws, self.stack_name, name, package, wait=wait)

    def _require_function(self, named: str | None, own: str) -> None:
        if named not in (None, own):
            raise ValidationError(
                "function_name", named, "is not the Lambda of this manager's stack"
            )
        self._require_versions(described_table(self._aws, self.stack_name))

    def deploy(
        self, stack_options: StackOptions | None = None, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """Create the stack or change it to what the options say, upload the Lambda's code, and
        write the table's first records: versions, the namespace `default`, retention."""
        options = stack_options or StackOptions()
        return self._deploy(options, options.audit_retention_days, on_event)

    def complete_stack(self) -> dict[str, Any]:
        """Upload the Lambda's code and write the table's first records, and leave the stack as it
        is: for stacks that CDK or Terraform deploy."""
        stack = describe_stack(self._aws, self.stack_name)
        if stack is None:
            raise InfrastructureNotFoundError(self.stack_name, "there is no stack of this name")
        table = described_table(self._aws, self.stack_name)
        self._require_table(table)
        self._require_versions(table)
        result = self._result(stack.stack_id, stack.status)
        has_lambda = FUNCTION_OUTPUT in stack.outputs
        if has_lambda:
            result["lambda"] = self.deploy_lambda_code()
        if PROVISIONER_OUTPUT in stack.outputs:
            result["provisioner"] = self.deploy_provisioner_code()
        set_up_table(self._aws, self.stack_name, has_lambda=has_lambda, retention_days=None)
        return result

    def upgrade(
        self, changes: Mapping[str, Any] | None = None, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """Bring the stack to this version, with the options that it has and these changes."""
        known = self.get_stack_options()
        if known is None:
            raise InfrastructureNotFoundError(self.stack_name, "there is no stack to upgrade")
        changes = changes or {}
        options = replace(known, **changes)
        return self._deploy(options, changes.get("audit_retention_days"), on_event)

    def _deploy(
        self, options: StackOptions, retention_days: int | None, on_event: OnEvent | None
    ) -> dict[str, Any]:
        result = self.create_stack(options, on_event=on_event)
        if options.deploys_aggregator_lambda:
            result["lambda"] = self.deploy_lambda_code()
        if options.deploys_provisioner_lambda:
            result["provisioner"] = self.deploy_provisioner_code()
        set_up_table(
            self._aws,
            self.stack_name,
            has_lambda=options.deploys_aggregator_lambda,
            retention_days=retention_days,
        )
        return result

    def delete_stack(
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
        self._require_own(stack_name)
        stack = describe_stack(self._aws, self.stack_name)
        if stack is None:
            gone = last_deleted_stack(self._aws, self.stack_name) if delete_archive else None
            left = {} if gone is None else self._leave_archive(gone, doomed=True)
            return {**self._result("", "absent"), **left}
        self._refuse_foreign_stack(stack)
        self._refuse_protected()
        with explained(self.stack_name):
            watch = self._watch(stack.stack_id, on_event)
            self._aws["cloudformation"].delete_stack(StackName=stack.stack_id)
            status = watch.wait() if wait else "started"
        result = self._result(stack.stack_id, status)
        return {**result, **self._leave_archive(stack, doomed=wait and delete_archive)}

    def get_archive_bucket(self) -> str | None:
        """Return the bucket with archived audit events, of the stack or of the one that was
        deleted last; None when it had none. The bucket may be deleted, too."""
        aws, name = self._aws, self.stack_name
        stack = describe_stack(aws, name) or last_deleted_stack(aws, name)
        return None if stack is None else stack.outputs.get(_ARCHIVE_OUTPUT)

    def _leave_archive(self, stack: Stack, *, doomed: bool = False) -> dict[str, Any]:
        bucket = stack.outputs.get(_ARCHIVE_OUTPUT)
        if bucket is None:
            return {}
        if doomed:
            return {"objects_deleted": delete_archive(self._aws, self.stack_name, bucket)}
        return {"archive_bucket": bucket}

    def _require_own(self, stack_name: str | None) -> None:
        """Refuse the name of another stack. Without this, a program that names the stack again
        might delete one and mean another."""
        if stack_name not in (None, self.stack_name):
            raise ValidationError(
                "stack_name", stack_name, f"is not the stack of this manager, {self.stack_name}"
            )

    def _refuse_protected(self) -> None:
        table = described_table(self._aws, self.stack_name)
        if table is not None and table.get("DeletionProtectionEnabled"):
            raise StackOperationError(
                self.stack_name,
                "its table is protected from deletion. Nothing was deleted. To turn that off:"
                f" zae-limiter upgrade --name {self.stack_name} --no-deletion-protection",
            )

    def _settled(self, on_event: OnEvent | None) -> Stack | None:
        """Return the stack once CloudFormation rests. What a failed creation left is deleted."""
        stack = describe_stack(self._aws, self.stack_name)
        if stack is None:
            return None
        if stack.is_busy:
            with explained(self.stack_name):
                self._watch(stack.stack_id, on_event).wait()
            stack = describe_stack(self._aws, self.stack_name)
        if stack is not None and stack.is_remains:
            self._refuse_foreign_stack(stack)
            self._refuse_foreign_table(described_table(self._aws, self.stack_name))
            with explained(self.stack_name):
                watch = self._watch(stack.stack_id, on_event)
                self._aws["cloudformation"].delete_stack(StackName=stack.stack_id)
                watch.wait()
            return None
        return stack

    def _plan(
        self, stack: Stack | None, table: dict[str, Any] | None, options: StackOptions
    ) -> ChangeSet | None:
        kind: ChangeKind
        if stack is None or stack.is_planned:
            self._refuse_foreign_table(table)
            kind, template = "CREATE", build_template(options)
        else:
            self._refuse_foreign_stack(stack)
            self._refuse_stuck(stack)
            self._require_table(table)
            self._require_versions(table)
            body = read_template(self._aws, stack)
            position = starting_position(self._aws, self.stack_name) or STARTING_POSITION
            kept = kept_descriptions(body)
            kind, template = "UPDATE", build_template(options, kept_shape(body), position, kept)
        tags = stack_tags(self.stack_name, options.tags)
        return plan_changes(self._aws["cloudformation"], self.stack_name, kind, template, tags)

    def _require_table(self, table: dict[str, Any] | None) -> None:
        if table is None:
            raise StackOperationError(
                self.stack_name,
                "its table is gone, and CloudFormation does not make it again. Nothing was changed."
                f" Restore a backup as the table '{self.stack_name}', or begin anew:"
                f" zae-limiter delete --name {self.stack_name}, then deploy",
            )

    def _require_versions(self, table: dict[str, Any] | None) -> None:
        """Leave a table alone whose records say that newer clients look after it."""
        if table is not None:
            require_deployable_table(
                self._aws, self.stack_name, allow_downgrade=self._allow_downgrade
            )

    def _refuse_foreign_table(self, table: dict[str, Any] | None) -> None:
        if table is not None:
            raise StackOperationError(
                self.stack_name,
                "there is a table of this name that belongs to no stack, or to one that was never"
                " finished. Nothing was changed",
            )

    def _refuse_foreign_stack(self, stack: Stack) -> None:
        if not stack.is_planned and not is_limiter(stack.tags):
            raise StackOperationError(
                self.stack_name,
                "it is not a limiter's, or others deploy it. Nothing was changed",
            )

    def _refuse_stuck(self, stack: Stack) -> None:
        if stack.remedy is not None:
            raise StackOperationError(
                self.stack_name,
                f"it is in the state {stack.status}, in which CloudFormation changes nothing."
                f" First run: {stack.remedy}",
            )

    def _watch(self, stack_id: str, on_event: OnEvent | None) -> StackWatch:
        return StackWatch(
            self._aws["cloudformation"], self.stack_name, stack_id, on_event, self._stopped
        )

    def _result(self, stack_id: str, status: str) -> dict[str, Any]:
        return {"stack_id": stack_id, "stack_name": self.stack_name, "status": status}
