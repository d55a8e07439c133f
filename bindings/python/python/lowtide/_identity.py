"""Whether the file of a pickle is still the one that it was."""

from ._lowtide import identity


def problem(path, noted, may_change):
    """Why the file at a path is not the one that was noted; None if it is. Where it ``may_change``
    the same file may have other bytes."""
    try:
        found = identity(path)
    except OSError as error:
        return f"{path} is not to be found any more ({error.strerror})"
    # Device, number and birth; bytes and the time of the last change.
    if found[:3] != noted[:3]:
        return f"{path} is another file by now"
    if not may_change and found != noted:
        return f"{path} has been written to since"
    return None
