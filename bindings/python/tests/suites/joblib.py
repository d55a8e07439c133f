"""A plugin of pytest: joblib's maps are ours, wherever it makes them in this process."""

import joblib.executor
import joblib.pool

import lowtide
from suites import Counted

counted = Counted()
lowtide.patch(budget="8M")


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(str(counted))
