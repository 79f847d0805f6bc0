"""The command run in this process, whose threads other tests need as they were."""

import pytest
import torch
from typer.testing import CliRunner

from bitgnn.cli import app


@pytest.fixture(autouse=True)
def _keep_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run():
    """Runs the command; it must end with the status given."""

    def invoke(*arguments, status=0, **options):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        assert result.exit_code == status, result.output
        return result

    return invoke


@pytest.fixture
def refused(run):
    """The one line in which the command says what to mend."""

    def invoke(*arguments):
        lines = run(*arguments, status=1).stderr.splitlines()
        lines = [line for line in lines if line.startswith("bitgnn: ")]
        (line,) = [line for line in lines if not line.startswith("bitgnn: warning: ")]
        assert line.startswith("bitgnn: error: ")
        return line

    return invoke
