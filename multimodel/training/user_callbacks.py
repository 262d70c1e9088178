"""A user's own Keras callbacks."""

import keras

from multimodel.errors import UserError


def user_callbacks(callbacks):
    """A user's callbacks as a list, checked.

    They are called after those of the library. After each step they get Keras' running means since the latest line of
    `history.jsonl`, `TASK_loss` and `TASK_accuracy` of each task, and `loss`, the weighted sum that is minimised; with
    a single task `loss` and `accuracy`. At the end, which is that of Keras' one epoch, they get the same. After a step
    with a line, these means are those of the line.

    Args:
        callbacks: a list of Keras callbacks, or a function without arguments that gives one.

    Raises:
        UserError: if it is neither.
    """
    given = callbacks() if callable(callbacks) else callbacks
    if not isinstance(given, list | tuple):
        raise UserError(
            f"Callbacks are a list, or a function that gives one. Received: callbacks={given!r}. "
            f"Put a single one into a list: [callback]."
        )
    for callback in given:
        if not isinstance(callback, keras.callbacks.Callback) or isinstance(callback, type):
            raise UserError(
                f"Callbacks are Keras callbacks. Received: callbacks=[{callback!r}]. "
                f"Give an instance of a subclass of keras.callbacks.Callback."
            )
    return list(given)
