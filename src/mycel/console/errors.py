"""What the command line says of errors that are expected, and how it ends."""

from __future__ import annotations


class CommandError(Exception):
    """Something that the user can put right; the text says how."""

    exit_code = 1


class UsageError(CommandError):
    exit_code = 2


def explain(error: Exception) -> str | None:
    """What to tell the user; nothing for what is a bug of ours.

    Mycel's own errors are written for users. A wrong step of a state machine is the one
    that nobody but us can put right. What the system refuses, such as to write where the user
    has asked us to, only the user can put right.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    kind = type(error)
    if kind.__module__.partition(".")[0] != "mycel" or kind.__name__ == "WrongStep":
        return None
    return str(error) or kind.__name__


def exit_code_of(error: Exception) -> int:
    return error.exit_code if isinstance(error, CommandError) else 1
