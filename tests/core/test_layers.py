"""What the contracts of import-linter cannot say: when a command imports a role.

`make lint` checks the contracts themselves; see `pyproject.toml`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from mycel.cli.main import COMMANDS

MODULES = sorted({command.module for command in COMMANDS.values()})


@pytest.mark.parametrize("module", MODULES)
def test_a_command_imports_no_role_before_it_runs(module: str) -> None:
    program = f"import sys, {module}; print([m for m in sys.modules if 'mycel.roles' in m])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
