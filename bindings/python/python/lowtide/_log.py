"""The runtime's messages, as records of the logger ``lowtide``."""

import logging
import traceback

_logger = logging.getLogger("lowtide")


def _emit(level, text, file, line):
    try:
        if _logger.isEnabledFor(level):
            _logger.handle(_logger.makeRecord(_logger.name, level, file, line, text, (), None))
    except Exception:
        # No code of the program waits for this. The next event is another one.
        traceback.print_exc()


def hand_over(events, lost):
    """Logs events of the runtime; ``lost`` is how many did not fit into the queue."""
    for event in events:
        _emit(*event)
    if lost:
        _emit(logging.WARNING, f"{lost} messages came faster than they were logged", __file__, 0)
