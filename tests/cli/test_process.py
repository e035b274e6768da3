"""Signals, limits and start-up of the command; few tests start a process, because each imports torch."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from calirare import InputError
from calirare._util import memory, startup
from calirare.cli import app
from tests.helpers.command import QUICK, call, succeed

COMMAND = (sys.executable, "-m", "calirare")
SILENT = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "CUDA_VISIBLE_DEVICES": ""}


LIGHT = """
import resource, sys
from calirare.cli.app import main
for words in (["--help"], ["--version"], ["train", "--help"], ["trian"], ["train", "--epoch", "3"], ["audit"]):
    sys.argv = ["calirare", *words]
    try:
        main()
    except SystemExit:
        pass
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = {"torch", "numpy", "scipy", "pandas", "matplotlib", "rich", "typer", "yaml", "calirare_ext"} & set(sys.modules)
print(used.ru_utime + used.ru_stime, *sorted(heavy))
"""


def test_help_and_usage_errors_are_told_at_once():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, env=SILENT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "did you mean train?" in done.stderr
    seconds, *heavy = done.stdout.splitlines()[-1].split()
    assert heavy == []
    assert float(seconds) <= 0.4, "of processor time, for all of them in one process"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a file whose import was stopped
def test_a_command_that_read_duckdb_ends_without_a_word_about_what_is_left(tmp_path):
    """Refused after it has read its tables, with input and output closed, and it still ends as any command does."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as engine:
        engine.execute("CREATE TABLE edges AS SELECT range AS source, (range + 7) % 60 AS target FROM range(60)")
        engine.execute(
            "CREATE TABLE nodes AS SELECT range AS id, range % 5 AS a, "
            "CASE WHEN range % 3 = 0 THEN 'bad' ELSE 'ok' END AS label FROM range(60)"
        )
    tables = f"--dataset {tmp_path}/t.duckdb::edges --nodes {tmp_path}/t.duckdb::nodes --rare-class good"
    line = f"{sys.executable} -m calirare train {tables} --out {tmp_path}/run <&- >&-"
    done = subprocess.run(["bash", "-c", line], stderr=subprocess.PIPE, text=True, env=SILENT, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "there is no class 'good'" in done.stderr
    assert len(done.stderr.splitlines()) == 1, "nothing is leaked"


# A signal while an object is destroyed raises nothing: Python says so, and the command ends at its next look.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("number", "handler"),
    [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)],
    ids=["Ctrl-C", "terminated", "hung up"],
)
def test_a_run_that_is_stopped_leaves_nothing(number, handler, graph_file, tmp_path):
    import scipy.stats  # noqa: F401

    import calirare.run  # noqa: F401 - with all it imports: a signal within an import leaves a file open

    begun = []

    def stop():
        until = time.monotonic() + 100
        while not begun and time.monotonic() < until:
            time.sleep(0.02)
            begun.extend(tmp_path.glob("runs/.a.*.partial"))
        time.sleep(0.2)
        os.kill(os.getpid(), number)

    before = signal.signal(number, handler)  # a job in the background ignores some
    watchers = gc.callbacks.copy()
    gc.callbacks.clear()  # those of test tools: Python drops what a signal raises while it runs one
    thread = threading.Thread(target=stop)
    thread.start()
    try:
        said = call("train", "--dataset", graph_file, "--epochs", "100000", "--out", tmp_path / "runs" / "a")
    finally:
        thread.join()
        gc.callbacks.extend(watchers)
        signal.signal(number, before)
    assert begun, "the run has begun"
    assert (said.code, said.out) == (128 + number, "")
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_during_the_imports_is_quiet(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "train", "--epochs", "100000", "--out", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=SILENT,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=40)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1:] == ["calirare: interrupted"]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        startup.handle({"SIGHUP": startup.leave})
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["python", "/usr/bin/calirare", "train"], True),
        (["python", "-u", "-m", "calirare", "train"], True),
        (["python", "-m", "pytest", "calirare"], False),
        (["python", "-c", "import calirare"], False),
        (["python"], False),
    ],
)
def test_only_the_command_has_its_signals_handled(words, ours, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", words)
    assert startup.is_command() == ours


def test_a_limit_that_leaves_too_little_memory_is_refused_with_the_estimate(graph_file, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "bytes_left", lambda: 10**7)  # as `ulimit -v` or a container would
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "run")
    assert said.code == 2, said.err
    assert (
        "GB are needed and 0.01 GB are allowed, a share of what is free: take fewer labels" in said.err.splitlines()[-1]
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [2_000, 20_000])
def test_a_write_that_really_fails_leaves_nothing(limit, graph_file, tmp_path):
    # The system refuses to let any file grow beyond the limit, as it would on a full disk.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "runs" / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (said.code, said.out) == (2, ""), said.err
    assert "nothing was kept" in said.err.splitlines()[-1]
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_program_whose_reader_has_gone_ends_as_others_do():
    """With the exit code of a shell for SIGPIPE; it is given a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        done = subprocess.run(
            [*COMMAND, "--help"], stdout=pipe, stderr=subprocess.PIPE, text=True, env=SILENT, timeout=120
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_closed_streams_and_an_odd_backend_are_no_trouble(monkeypatch):
    """No file gets the number of a stream that was closed, and pictures are drawn to files whatever the environment."""
    child = os.fork()
    if not child:
        for number in range(3):
            os.close(number)
        startup.occupy_closed_streams()
        os._exit(0 if os.open(os.devnull, os.O_RDONLY) > 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    monkeypatch.setenv("MPLBACKEND", "none_such")
    seen = []
    monkeypatch.setattr(app, "run", lambda words: seen.append(os.environ["MPLBACKEND"]))
    succeed()
    assert seen == ["agg"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_whose_signal_was_dropped_leaves_nothing_either(number, code, graph_file, tmp_path, monkeypatch):
    """As within a callback of a C library, where Python cannot hand on what is raised."""

    def callback(*_):
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            (app._interrupt if number == signal.SIGINT else app._stop)(number, None)

    monkeypatch.setattr("calirare.run.outcome.write_csv", callback)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "runs" / "a")
    assert said.code == code
    assert list(tmp_path.iterdir()) == []
    assert not startup.STOPPED, "what comes next is not stopped"


MEMORY = "calirare: memory ran out, and what was there before is unchanged: "
OUT_OF_MEMORY = (
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:113] DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ImportError("_slsqplib.cpython-311-x86_64-linux-gnu.so: failed to map segment from shared object"),
)


@pytest.mark.parametrize(
    ("number", "error", "code", "said"),
    [
        (signal.SIGTERM, ValueError("Invalid bounding box"), 143, ""),
        (signal.SIGTERM, InputError("model.safetensors is damaged"), 143, ""),
        (signal.SIGINT, InputError("model.safetensors is damaged"), 130, "calirare: interrupted\n"),
        (None, ValueError("of ours"), 1, "of ours"),
        *((None, error, 1, MEMORY) for error in OUT_OF_MEMORY),
        (None, OSError(errno.ENOSPC, "No space left on device"), 1, "the disk is full, so the output could not be"),
        (None, PermissionError(errno.EACCES, "Permission denied", "r/a.html"), 1, "r/a.html: Permission denied: see"),
        (None, InputError("is damaged"), 2, "calirare: is damaged\n"),
    ],
)
def test_an_error_is_one_line_and_ends_as_the_signal_that_became_it(number, error, code, said, monkeypatch, capsys):
    """As within a C library, that makes an error of its own of whatever is raised while it works."""

    def fails(words):
        if number is not None:
            with pytest.raises((SystemExit, KeyboardInterrupt)):
                (app._interrupt if number == signal.SIGINT else app._stop)(number, None)
        raise error

    monkeypatch.setattr(app, "run", fails)
    with pytest.raises(SystemExit) as end:
        app.main()
    assert end.value.code == code
    err = capsys.readouterr().err
    assert said in err if said else err == ""
    assert len(err.splitlines()) <= 1
