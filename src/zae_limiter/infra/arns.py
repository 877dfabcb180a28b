"""ARNs of a stack's parts, by the stack's name, for policies that are made before the stack."""

from __future__ import annotations

from dataclasses import dataclass

from .policies import Places

# S3 takes 63 characters. CloudFormation shortens longer names, and adds characters of its own.
_BUCKET_PREFIX_CHARS = 24


@dataclass(frozen=True, slots=True)
class StackArns:
    """The ARNs of a stack's parts. A star stands for every region or account."""

    stack_name: str
    region: str = "*"
    account: str = "*"
    partition: str = "aws"

    def regional(self, service: str, resource: str) -> str:
        """Return the ARN of a resource that lives in a region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def global_(self, resource: str) -> str:
        """Return the ARN of a role or a policy."""
        return f"arn:{self.partition}:iam::{self.account}:{resource}"

    @property
    def archive(self) -> str:
        """The bucket, to whose name CloudFormation adds characters of its own."""
        prefix = self.stack_name.lower()[:_BUCKET_PREFIX_CHARS]
        return f"arn:{self.partition}:s3:::{prefix}*"

    @property
    def function(self) -> str:
        """The aggregator."""
        return self.regional("lambda", f"function:{self.stack_name}-aggregator")

    @property
    def log_group(self) -> str:
        """The aggregator's log, with its streams."""
        return self.regional("logs", f"log-group:/aws/lambda/{self.stack_name}-aggregator*")

    @property
    def provisioner(self) -> str:
        """The Lambda that applies declared limits."""
        return self.regional("lambda", f"function:{self.stack_name}-limits-provisioner")

    @property
    def provisioner_log(self) -> str:
        """The log of the Lambda that applies declared limits, with its streams."""
        name = f"{self.stack_name}-limits-provisioner"
        return self.regional("logs", f"log-group:/aws/lambda/{name}*")

    @property
    def places(self) -> Places:
        """The places that policies of the stack are about."""
        table = self.regional("dynamodb", f"table/{self.stack_name}")
        return Places(
            table,
            f"{table}/index/*",
            f"{table}/stream/*",
            self.log_group,
            self.regional("sqs", f"{self.stack_name}-aggregator-dlq"),
            f"{self.archive}/audit/*",
            self.provisioner_log,
        )
