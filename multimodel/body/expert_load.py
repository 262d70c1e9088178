"""Which experts each task uses."""

import keras
from keras import ops


class ExpertLoad:
    """How many positions of each task chose each expert, summed over training steps since the last `reset`.

    Its variables are state of the step, as the random seeds are, and no weights: they are neither counted nor saved.

    Args:
        blocks: the MoEBlocks to count.
        tasks: names.
    """

    def __init__(self, blocks, tasks):
        self.tasks = list(tasks)
        self.counts = {
            block.name: keras.Variable(
                "zeros",
                shape=(len(self.tasks), block.num_experts),
                trainable=False,
                autocast=False,  # counts above 256 are not exact in bfloat16
                name=f"{block.name}_load",
            )
            for block in blocks
        }

    def add(self, choices):
        """Adds a step's `{block: {task: (e,)}}`."""
        for block, by_task in choices.items():
            if block.name in self.counts:
                nothing = ops.zeros((block.num_experts,))
                self.counts[block.name].assign_add(ops.stack([by_task.get(task, nothing) for task in self.tasks]))

    def shares(self):
        """`{block: {task: shares of its choices (e,)}}` of the tasks that passed through the block."""
        result: dict = {}
        for name, counts in self.counts.items():
            values = ops.convert_to_numpy(counts)
            result[name] = {task: row / row.sum() for task, row in zip(self.tasks, values, strict=True) if row.sum()}
        return result

    def reset(self):
        for counts in self.counts.values():
            counts.assign(ops.zeros(counts.shape))
