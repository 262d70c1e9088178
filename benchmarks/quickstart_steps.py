"""The quickstart's model, compiled and fed as `multimodel train quickstart` does it."""

import itertools
import os
import statistics
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("ignore", "Gradients do not exist")  # label tasks alone leave mixer and decoder without any


class Trained:
    """The quickstart with some of its tasks, each with the share of a step that it has beside the others.

    Args:
        tasks: names; all if None.
        precision: "float32" or "mixed_bfloat16".
    """

    def __init__(self, tasks=None, precision="float32"):
        import keras

        from multimodel.shipped import load_recipe
        from multimodel.training.console import Reporter
        from multimodel.training.prepare import prepare, resolve

        recipe = load_recipe("quickstart")
        shares = recipe.mixture.shares(recipe.batch_size)
        names = tasks or list(shares)
        recipe = resolve(recipe, names, {"batch_size": sum(shares[name] for name in names)})
        keras.utils.set_random_seed(recipe.seed)
        _, self.batches, bundle, _ = prepare(recipe, precision, "auto", Reporter(quiet=True))
        self.model = bundle.model

    def fit(self, steps):
        """Runs `fit`; `(begin, end)` of each step."""
        import keras

        begins, ends = [], []
        clock = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda step, logs: begins.append(time.perf_counter()),
            on_train_batch_end=lambda step, logs: ends.append(time.perf_counter()),
        )
        self.model.fit(self.batches.dataset(), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[clock])
        return list(zip(begins, ends, strict=True))


def median_seconds(steps):
    """From the end of one step to that of the next, the median."""
    return statistics.median(later[1] - earlier[1] for earlier, later in itertools.pairwise(steps))
