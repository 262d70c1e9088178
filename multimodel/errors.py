"""Mistakes that a user can mend."""

import difflib


class UserError(ValueError):
    """A user's mistake; the message is whole by itself: the rule, what was received, and the fix."""


def unknown(kind, name, names):
    """A UserError for a name that is none of `names`, with the nearest one."""
    names = sorted(names)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Choose one of: {', '.join(names)}."
    return UserError(f"Unknown {kind}. Received: {kind}={name!r}. {hint}")
