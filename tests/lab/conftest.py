"""What the lab's tests share with those of the command line."""

from tests.cli.conftest import finished as finished
from tests.cli.conftest import graph_file as graph_file
from tests.cli.conftest import quick_run as quick_run
from tests.cli.conftest import trained_quickly as trained_quickly
