"""Tables are readable where a terminal has few letters."""

from __future__ import annotations

import os
import subprocess
import sys

from calirare._util.startup import PLAIN


def test_lines_of_tables_are_drawn_with_plain_letters():
    assert "┏━┳┓│a┃└─┘".encode("ascii", PLAIN) == b"+-++|a|+-+"
    assert "café 猫 \udc80".encode("ascii", PLAIN) == rb"caf\xe9 \u732b \udc80"


def test_the_command_speaks_where_the_locale_has_few_letters():
    begin = "import sys; from calirare.cli.app import _stand_alone; _stand_alone()"
    said = begin + r"; print('\u250f\u2501\u2513'); print('\u2503', file=sys.stderr)"
    few = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, env={**os.environ, **few}, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"+-+\n", b"|\n")
