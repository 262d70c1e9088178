"""Mistakes that a user can mend."""

import difflib


class UserError(ValueError):
    """A user's mistake; the message is whole by itself: the rule, what was received, and the fix.

    Attributes:
        lines: the message, one line for each thing to mend.
        exit_code: of the command that ends with it.
    """

    exit_code = 2

    @property
    def lines(self):
        return [" ".join(str(self).split())]


class MissingDataError(UserError):
    """Data of some tasks is not there; one line for each, which says what to get and where to put it."""

    def __init__(self, messages):
        super().__init__("\n".join(messages))
        self._messages = messages

    @property
    def lines(self):
        return [" ".join(message.split()) for message in self._messages]


def unknown(kind, name, names):
    """A UserError for a name that is none of `names`, with the nearest one."""
    names = sorted(names)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Choose one of: {', '.join(names)}."
    return UserError(f"Unknown {kind}. Received: {kind}={name!r}. {hint}")
