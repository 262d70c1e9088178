"""MultiModel: modality nets and a body, wired for each task by its signature."""

import contextlib
import math
from collections import defaultdict

import keras
from keras import ops

from multimodel.body.block import section
from multimodel.body.expert_load import ExpertLoad
from multimodel.body.moe import MoEBlock
from multimodel.body.routing import collect_routing
from multimodel.signature import Signature


@keras.saving.register_keras_serializable("multimodel")
class Command(keras.layers.Layer):
    """The learned vector that a decoder starts from, one per target space (arXiv 1706.05137, section 2.4)."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim

    def build(self, *shapes):
        self.vector = self.add_weight(shape=(self.dim,), initializer="random_normal", name="vector")
        self.built = True

    def call(self, embedded):
        """Embedded targets `(b, m, d)` -> what the decoder reads: the command, then all targets but the last."""
        batch_size, length = ops.shape(embedded)[:2]
        return ops.concatenate([self.first(batch_size), section(embedded, 0, length - 1, axis=1)], axis=1)

    def first(self, batch_size):
        """What the decoder reads first, `(b, 1, d)`."""
        vector = ops.cast(ops.convert_to_tensor(self.vector), self.compute_dtype)
        return ops.broadcast_to(vector, (batch_size, 1, self.dim))


@keras.saving.register_keras_serializable("multimodel")
class LossWeight(keras.layers.Layer):
    """What the loss of one task weighs among those of the others, learned (arXiv 1705.07115, after equation 10).

    A loss L counts as `exp(-s) * L + s`: the weight tends to 1 / L, and the price `s` keeps it from 0. `s` begins at 0.
    """

    def build(self, *shapes):
        self.s = self.add_weight(shape=(), initializer="zeros", name="s", autocast=False)
        self.built = True

    def call(self, loss):
        """A scalar loss -> the same number, with the gradient of `exp(-s) * loss + s`: what is logged stays plain."""
        s = ops.convert_to_tensor(self.s)
        weighted = ops.exp(-s) * loss + s
        return ops.stop_gradient(loss - weighted) + weighted

    def value(self):
        """`exp(-s)`, a float."""
        return math.exp(-float(ops.convert_to_numpy(self.s)))


@keras.saving.register_keras_serializable("multimodel")
class MultiModel(keras.Model):
    """One model for many tasks (arXiv 1706.05137).

    `logits = output_net(decode(command + shifted targets, encode(input_net(inputs))))`; a task whose output net reads
    `"encoded"` stops after the encoder. Tasks of equal padded lengths go through the body as one group, and the experts
    see the positions of all groups at once.

    Args:
        signatures: of the tasks.
        body: a Body.
        nets: `{name: net}` with every `input_net` and `output_net` that a signature names; each is also an attribute
            of that name, and so is each `SPACE_command`.
        learned_loss_weights: whether each task has a LossWeight, the attribute `TASK_loss_weight`, for its loss to go
            through.

    Shapes: `{task: {"inputs" (b, ...), "inputs_mask" (b, ...), "targets" (b, m)}}` for any of its tasks ->
    `{task: logits (b, m, v)}`. `"inputs_mask"` may be left out; label tasks have no `"targets"`.

    Raises:
        ValueError: if a signature names a net that is missing.
    """

    def __init__(self, signatures, body, nets, learned_loss_weights=False, **kwargs):
        super().__init__(**kwargs)
        self.learned_loss_weights = learned_loss_weights
        self.signatures = {s.task: s for s in signatures}
        self.body = body
        self.net_names = sorted(nets)
        for signature in signatures:
            for name in (signature.input_net, signature.output_net):
                if name not in nets:
                    raise ValueError(
                        f"Every net that a signature names is given. Received: nets={self.net_names}, "
                        f"and no {name!r} for task {signature.task!r}. Add it to nets."
                    )
        # Keras saves an attribute by its name, but a member of a dict by class and position: a net that is added
        # later must not move the weights of the others.
        for name, net in nets.items():
            setattr(self, name, net)
        for name in self._command_names():
            setattr(self, name, Command(body.dim, dtype=body.dtype_policy, name=name))
        for name in self._loss_weight_names():
            setattr(self, name, LossWeight(dtype="float32", name=name))

    def input_net(self, task):
        return getattr(self, self.signatures[task].input_net)

    def output_net(self, task):
        return getattr(self, self.signatures[task].output_net)

    def command(self, task):
        return getattr(self, f"{self.signatures[task].command}_command")

    def loss_weights(self):
        """`{task: LossWeight}`, empty where weights are not learned."""
        return {task: getattr(self, f"{task}_loss_weight") for task in self.signatures if self.learned_loss_weights}

    def build(self, *shapes):
        self.body.build()
        for name in self.part_names():
            part = getattr(self, name)
            if not part.built:
                part.build()
        blocks = [*self.body.encoder, *self.body.mixer, *self.body.decoder]
        self.expert_load = ExpertLoad([block for block in blocks if isinstance(block, MoEBlock)], self.signatures)
        self.built = True

    @property
    def variables(self):
        return super().variables + (list(self.expert_load.counts.values()) if self.built else [])

    def call(self, features, training=False):
        with collect_routing() if training else contextlib.nullcontext() as routing:
            encoded = self.encode(features, training, routing)
            logits = {}
            decoded_tasks = [task for task in features if self.output_net(task).reads == "decoded"]
            for task in features:
                if task not in decoded_tasks:
                    logits[task] = self.output_net(task)(encoded[task][0], mask=encoded[task][1])
            if decoded_tasks:
                for task, vectors in self._decode(decoded_tasks, features, encoded, training, routing).items():
                    logits[task] = self.output_net(task)(vectors)
        if routing is not None:
            for block, sums in routing.sums.items():
                self.add_loss(block.routing_loss(sums))
            self.expert_load.add(routing.choices)
        return logits

    def encode(self, features, training=False, routing=None):
        """`{task: features}` -> `{task: (encoded (b, n, d), mask (b, n))}`."""
        vectors = {}
        for task, values in features.items():
            net = self.input_net(task)
            vectors[task] = net(values["inputs"], mask=values.get("inputs_mask"), training=training)
        groups = _groups(features, lambda task: vectors[task][0].shape[1])
        xs, masks = ([_join([vectors[task][i] for task in group]) for group in groups] for i in (0, 1))
        with _counted(routing, groups, vectors):
            xs = self.body.encode(xs, masks, training)
        return _split(groups, xs, masks, vectors)

    def _decode(self, tasks, features, encoded, training, routing):
        """The decoded vectors `(b, m, d)` of tasks with targets."""
        shifted = {}
        for task in tasks:
            targets = features[task]["targets"]
            shifted[task] = self.command(task)(self.output_net(task).embed(targets)), ops.not_equal(targets, 0)
        groups = _groups(tasks, lambda task: (shifted[task][0].shape[1], encoded[task][0].shape[1]))
        xs, masks = ([_join([shifted[task][i] for task in group]) for group in groups] for i in (0, 1))
        contexts, context_masks = ([_join([encoded[task][i] for task in group]) for group in groups] for i in (0, 1))
        with _counted(routing, groups, shifted):
            xs = self.body.decode(xs, masks, contexts, context_masks, training)
        return {task: x for task, (x, _) in _split(groups, xs, masks, shifted).items()}

    def part_names(self):
        """Names of the attributes that hold nets, commands and learned loss weights."""
        return self.net_names + self._command_names() + self._loss_weight_names()

    def parts_of(self, tasks):
        """The layers that some tasks need: nets, commands and blocks, each once."""
        blocks = list(self.body.encoder)
        parts: list = []
        for task in tasks:
            parts += [self.input_net(task), self.output_net(task)]
            if self.output_net(task).reads == "decoded":
                parts.append(self.command(task))
                blocks = [*self.body.encoder, *self.body.mixer, *self.body.decoder]
        return list({id(part): part for part in [*parts, *blocks]}.values())

    def _command_names(self):
        return sorted({f"{s.command}_command" for s in self.signatures.values() if s.target_modality != "label"})

    def _loss_weight_names(self):
        return sorted(f"{task}_loss_weight" for task in self.signatures) if self.learned_loss_weights else []

    def get_config(self):
        return super().get_config() | {
            "learned_loss_weights": self.learned_loss_weights,
            "signatures": [signature.to_json() for signature in self.signatures.values()],
            "body": keras.saving.serialize_keras_object(self.body),
            "nets": {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in self.net_names},
        }

    @classmethod
    def from_config(cls, config):
        revive = keras.saving.deserialize_keras_object
        config["signatures"] = [Signature.from_json(values) for values in config["signatures"]]
        config["body"] = revive(config["body"])
        config["nets"] = {name: revive(net) for name, net in config["nets"].items()}
        return cls(**config)


def _groups(tasks, key):
    """Tasks of equal key, in order of first appearance."""
    groups = defaultdict(list)
    for task in tasks:
        groups[key(task)].append(task)
    return list(groups.values())


def _join(parts):
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=0)


def _counted(routing, groups, sequences):
    """Tells a RoutingRecord whose positions the body sees, where it is known how many they are."""
    positions = {}
    for task in (task for group in groups for task in group):
        batch_size, length = ops.shape(sequences[task][0])[:2]
        if routing is None or not isinstance(batch_size, int) or not isinstance(length, int):
            return contextlib.nullcontext()
        positions[task] = batch_size * length
    return routing.tokens(positions)


def _split(groups, xs, masks, rows):
    """`{task: (x, mask)}`: gives each task its rows of its group, as many as `rows[task]` has."""
    parts = {}
    for group, x, mask in zip(groups, xs, masks, strict=True):
        start = 0
        for task in group:
            size = ops.shape(rows[task][0])[0]
            parts[task] = (x, mask) if len(group) == 1 else (section(x, start, size), section(mask, start, size))
            start = start + size
    return parts
