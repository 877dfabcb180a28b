"""The command line, `zae-limiter`: one module for each group of commands.

Read `entity` first, a typical group. All groups share `options` (arguments and flags), `target`
(the store and namespace of a command), `limit_syntax` (limits as text), `output` (JSON, grids,
lines) and `commands` (errors as messages). `demo` is a program of its own.
"""

from __future__ import annotations

import click

from .._version import __version__
from .aggregate import aggregate
from .audit import audit
from .bucket import bucket
from .commands import Commands
from .completion import completion
from .config import config
from .demo.command import demo
from .doctor.command import doctor
from .entity import entity
from .iam_policy import iam_policy
from .limits import limits
from .local_aws.command import local
from .migrate import migrate
from .namespace import namespace
from .options import examples
from .resource import resource
from .stack import delete, deploy, list_stacks, status, upgrade
from .stack_files import cfn_template, lambda_export
from .system import system
from .take import acquire, available, run
from .usage import usage
from .version import check, version

__all__ = ["cli"]


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=examples("demo", "resource set-defaults gpt-4 -l rpm:100", "bucket show key-1 gpt-4"),
)
@click.version_option(__version__, prog_name="zae-limiter", message="%(version)s")
def cli() -> None:
    """Distributed token-bucket rate limits.

    The store is --url (or ZAEL_URL), or --name (or ZAEL_STACK): before the command or after it.

    Exit codes: 0 done, 1 error, 2 wrong use, 3 refused by a limit, 4 the store could not answer,
    130 interrupted.
    """


for command in (
    acquire,
    aggregate,
    audit,
    available,
    bucket,
    cfn_template,
    check,
    completion,
    config,
    delete,
    demo,
    deploy,
    doctor,
    entity,
    iam_policy,
    lambda_export,
    limits,
    list_stacks,
    local,
    migrate,
    namespace,
    resource,
    run,
    status,
    system,
    upgrade,
    usage,
    version,
):
    cli.add_command(command)
