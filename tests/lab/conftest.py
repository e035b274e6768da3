"""What the lab's tests share with those of the command line."""

from tests.cli.conftest import graph_file as graph_file
from tests.cli.conftest import quick_run as quick_run
