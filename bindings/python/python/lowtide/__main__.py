"""``python -m lowtide``: the command ``lowtide`` of the wheel.

``python -m lowtide run --max 2G train.py`` runs a Python program with this interpreter; every
other program is named after ``--``, as the command has it.
"""

import os
import sys
from pathlib import Path

#: The command finds the library that it loads into programs beside itself.
COMMAND = Path(__file__).with_name("_bin") / "lowtide"


def arguments(given):
    """The arguments with which the command runs: a script is run by this interpreter."""
    if given[:1] != ["run"]:
        return given
    for at, word in enumerate(given):
        if word == "--":
            break
        if word.endswith(".py") and os.path.isfile(word):
            return [*given[:at], "--", sys.executable, *given[at:]]
    return given


def main():
    """Becomes the command."""
    if not COMMAND.exists():
        sys.exit(
            f"lowtide: there is no command at {COMMAND}: this package was built without it; "
            "`bindings/python/build-wheel` builds a wheel that has it"
        )
    os.execv(COMMAND, [str(COMMAND), *arguments(sys.argv[1:])])


if __name__ == "__main__":
    main()
