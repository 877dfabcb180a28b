"""`zae-limiter completion` prints the script by which a shell completes commands and options."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from .options import examples

_PROGRAM = "zae-limiter"
_VARIABLE = "_ZAE_LIMITER_COMPLETE"


class _LineBashComplete(BashComplete):
    """Bash cuts its words at colons, too: the line is read anew, or the URL of a store would be
    three arguments."""

    source_template = BashComplete.source_template.replace(
        'COMP_WORDS="${COMP_WORDS[*]}"', 'COMP_WORDS="${COMP_LINE:0:COMP_POINT}"'
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words, incomplete


add_completion_class(_LineBashComplete)
_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": _LineBashComplete,
    "fish": FishComplete,
    "zsh": ZshComplete,
}


@click.command(
    epilog=examples(
        "completion bash >> ~/.bashrc",
        "completion zsh >> ~/.zshrc",
        "completion fish > ~/.config/fish/completions/zae-limiter.fish",
        on_a_store=False,
    )
)
@click.argument("shell", type=click.Choice(sorted(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands."""
    script = _SHELLS[shell](ctx.find_root().command, {}, _PROGRAM, _VARIABLE)
    # The class for bash would start a bash to ask for its version.
    click.echo(ShellComplete.source(script))
