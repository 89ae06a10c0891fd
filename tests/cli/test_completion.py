"""Shell completion: bash, on a terminal, completes what is typed; scripts of others are whole."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steadyarm.cli.main import main


class Terminal:
    """An interactive bash; `typed` gives the line after a TAB."""

    def __init__(self, folder: Path, script: Path) -> None:
        self._fd, other = pty.openpty()
        setup = "PS1='> '\nbind 'set bell-style none'\nbind 'set completion-query-items 1000'\n"
        (folder / "rc").write_text(f"{setup}source {script}\n")
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--rcfile", str(folder / "rc"), "-i"],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=folder,
            env=os.environ | {"TERM": "dumb", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(other)
        self._until("> ")

    def _until(self, end: str) -> str:
        seen, limit = "", time.monotonic() + 30
        while not seen.endswith(end):
            assert time.monotonic() < limit, seen
            if select.select([self._fd], [], [], 0.2)[0]:
                seen += os.read(self._fd, 65536).decode()
        return seen

    def typed(self, text: str, wanted: str) -> None:
        """Type a text and a TAB, and wait until the terminal shows what is wanted; then clear."""
        os.write(self._fd, f"{text}\t".encode())
        self._until(wanted)
        os.write(self._fd, b"\x15\n")
        self._until("> ")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Terminal]:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "steadyarm.bash").write_text(capsys.readouterr().out)
    found = Terminal(tmp_path, tmp_path / "steadyarm.bash")
    yield found
    found.close()


def test_bash_completes_commands_options_choices_and_files(
    terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "checkout.toml").write_text("")
    terminal.typed("steadyarm exp", "steadyarm experiment ")
    terminal.typed("steadyarm experiment recom", "steadyarm experiment recommend ")
    terminal.typed("steadyarm experiment show --stor", "show --storage ")
    terminal.typed("steadyarm experiment list --format j", "--format json ")
    terminal.typed("steadyarm completion fi", "completion fish ")
    terminal.typed("steadyarm experiment create check", "create checkout.toml ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("experiment", "recommend", "webhook", "--storage", "--token", "completion"):
        assert word.removeprefix("--") in script
    if program := shutil.which(shell):
        parsed = subprocess.run([program, "-n"], input=script, text=True, capture_output=True)
        assert (parsed.returncode, parsed.stderr) == (0, "")


def test_the_library_is_an_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'steadyarm[completion]'" in capsys.readouterr().err
