"""`zae-limiter completion` prints the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from .options import examples

_PROGRAM = "zae-limiter"
_VARIABLE = "_ZAE_LIMITER_COMPLETE"
_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
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
