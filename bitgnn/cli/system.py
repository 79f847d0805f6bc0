"""The command `doctor`."""

import typer

from bitgnn.cli.base import app, guard


@app.command()
def doctor() -> None:
    """Print versions, build, hardware and what is missing."""

    def job() -> None:
        from bitgnn.doctor import report

        typer.echo(report())

    guard(job, None)
