"""A plugin of pytest: numpy's tests of its memmap have ours under that name."""

import lowtide
from suites import Counted

counted = Counted()
lowtide.set_default("8M")


def pytest_collection_modifyitems(items):
    # Under whatever name pytest has imported it.
    for item in items:
        item.module.memmap = lowtide.memmap


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(str(counted))
