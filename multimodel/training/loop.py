"""The training loop: Keras `fit`, and all that watches over it."""

import warnings

from multimodel.training.checkpoints import state_of
from multimodel.training.ema import keep_averages
from multimodel.training.history import History
from multimodel.training.recovery import FaultError, Guard, Recovery
from multimodel.training.resume import Saver
from multimodel.training.tensorboard import TensorBoardLog
from multimodel.training.validation import Validation


class Loop:
    """Trains a model from where a run stands to its last step.

    Args:
        recipe: a Recipe with a number of steps.
        bundle: the Bundle to train, compiled.
        batches: the MixedBatches.
        description: of the run, as `describe` gives it.
        run: the Run.
        checkpoints: its Checkpoints.
        interrupts: the Interrupts.
        reporter: the Reporter.
    """

    def __init__(self, recipe, bundle, batches, description, run, checkpoints, interrupts, reporter):
        self._recipe, self._bundle, self._batches, self._description = recipe, bundle, batches, description
        self._run, self._checkpoints, self._interrupts, self._reporter = run, checkpoints, interrupts, reporter

    def watch(self, log_every, save_every, callbacks, checkpoint=None):
        """Makes the callbacks, and goes back to a checkpoint.

        Args:
            log_every, save_every: as for `train`.
            callbacks: a user's, a list.
            checkpoint: a Checkpoint, or None to begin.
        """
        run, model, batches = self._run, self._bundle.model, self._batches
        self._listeners = self._reporter.progress(), TensorBoardLog(run.folder / "tensorboard", self._reporter.line)
        self._history = History(run.folder / "history.jsonl", model, batches, log_every, self._listeners)
        guard = Guard(model.signatures, self._history)
        self._validation = None
        if self._recipe.validate_every:
            self._validation = Validation(self._recipe, self._bundle, self._history, self._reporter)
        parts = {"history": self._history, "guard": guard, "validation": self._validation}
        self._saver = Saver(
            self._checkpoints, self._bundle, self._description, parts, batches, save_every, self._reporter
        )
        if checkpoint:
            self._saver.restore(checkpoint)
        self._recovery = Recovery(run, self._checkpoints, model, batches, self._saver, self._reporter)
        own = [guard, self._history, self._validation, self._interrupts.callback, self._saver]
        self._callbacks = [callback for callback in own if callback] + callbacks

    @property
    def step(self):
        """Steps done."""
        return self._history.step

    def fit(self):
        """Runs Keras `fit` to the last step, again after each fault.

        Raises:
            UserError: if an example cannot be read that was not read beforehand, or faults do not end.
        """
        with warnings.catch_warnings():
            # Label tasks alone leave mixer and decoder without gradients, and are right to.
            warnings.filterwarnings("ignore", "Gradients do not exist")
            try:
                while not self._ended() and not self._fitted():
                    pass
            finally:
                for listener in self._listeners:
                    listener.close()

    def _ended(self):
        return self.step >= self._recipe.steps or (self._validation is not None and self._validation.exhausted)

    def _fitted(self):
        """Whether one `fit` ended without a fault."""
        self._interrupts.fitting = True
        try:
            self._bundle.model.fit(
                self._batches.dataset(self.step),
                steps_per_epoch=self._recipe.steps - self.step,
                shuffle=False,
                verbose=0,
                callbacks=self._callbacks,
            )
        except FaultError as fault:
            self._recovery.recover(fault)
            return False
        except Exception:
            if self._batches.error is None:
                raise
            raise self._batches.error from None
        finally:
            self._interrupts.fitting = False
        return True

    def finish(self):
        """Gives the model the weights that are kept: the best ones where there is validation, and averages where they
        are taken.

        Returns:
            What `metrics.json` says of training.
        """
        model, best = self._bundle.model, self._checkpoints.best() if self._validation else None
        if best:
            best.restore(state_of(model))
        keep_averages(model)
        return {
            "recipe": self._recipe.name,
            "step": self.step,
            "seconds": round(self._history.seconds, 1),
            "checkpoint_seconds": round(self._saver.seconds, 2),
            "parameters": model.count_params(),
            "usage": self._history.usage(),
        } | ({"best_step": best.step} if best else {})
