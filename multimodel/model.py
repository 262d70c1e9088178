"""MultiModel: modality nets and a body, wired for each task by its signature."""

from collections import defaultdict

import keras
from keras import ops

from multimodel.body.expert_load import ExpertLoad
from multimodel.body.moe import MoEBlock
from multimodel.body.routing import RoutingRecord, collect_routing
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
        return ops.concatenate([self.first(ops.shape(embedded)[0]), embedded[:, :-1]], axis=1)

    def first(self, batch_size):
        """What the decoder reads first, `(b, 1, d)`."""
        vector = ops.cast(ops.convert_to_tensor(self.vector), self.compute_dtype)
        return ops.broadcast_to(vector, (batch_size, 1, self.dim))


@keras.saving.register_keras_serializable("multimodel")
class MultiModel(keras.Model):
    """One model for many tasks (arXiv 1706.05137).

    `logits = output_net(decode(command + shifted targets, encode(input_net(inputs))))`; a task whose output net reads
    `"encoded"` stops after the encoder. Tasks of equal padded lengths go through the body in one pass.

    Args:
        signatures: of the tasks.
        body: a Body.
        nets: `{name: net}` with every `input_net` and `output_net` that a signature names; each is also an attribute
            of that name, and so is each `SPACE_command`.

    Shapes: `{task: {"inputs" (b, ...), "inputs_mask" (b, ...), "targets" (b, m)}}` for any of its tasks ->
    `{task: logits (b, m, v)}`. `"inputs_mask"` may be left out; label tasks have no `"targets"`.

    Raises:
        ValueError: if a signature names a net that is missing.
    """

    def __init__(self, signatures, body, nets, **kwargs):
        super().__init__(**kwargs)
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

    def input_net(self, task):
        return getattr(self, self.signatures[task].input_net)

    def output_net(self, task):
        return getattr(self, self.signatures[task].output_net)

    def command(self, task):
        return getattr(self, f"{self.signatures[task].command}_command")

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
        with collect_routing() as routing:
            encoded = self._encode(features, training, routing)
            logits = {}
            decoded_tasks = [task for task in features if self.output_net(task).reads == "decoded"]
            for task in features:
                if task not in decoded_tasks:
                    logits[task] = self.classify(task, *encoded[task])
            for task, vectors in self._decode(decoded_tasks, features, encoded, training, routing).items():
                logits[task] = self.output_net(task)(vectors)
        if training:
            for block, sums in routing.sums.items():
                self.add_loss(block.routing_loss(sums))
            self.expert_load.add(routing.choices)
        return logits

    def encode(self, features):
        """`{task: features}` -> `{task: (encoded (b, n, d), mask (b, n))}`."""
        return self._encode(features, False, RoutingRecord())

    def classify(self, task, encoded, mask):
        """Logits `(b, 1, v)` of a task whose output net reads the encoder."""
        grid = self.input_net(task).grid(self.signatures[task].input_shape)
        return self.output_net(task)(encoded, mask=mask, grid=grid)

    def _encode(self, features, training, routing):
        vectors = {}
        for task, values in features.items():
            net = self.input_net(task)
            vectors[task] = net(values["inputs"], mask=values.get("inputs_mask"), training=training)
        encoded: dict = {}
        for tasks in _groups(features, lambda task: vectors[task][0].shape[1]):
            x, mask = (_join([vectors[task][i] for task in tasks]) for i in (0, 1))
            with routing.rows(_rows(tasks, vectors)):
                x = self.body.encode(x, mask, training)
            encoded |= _split(tasks, x, mask, vectors)
        return encoded

    def _decode(self, tasks, features, encoded, training, routing):
        """The decoded vectors `(b, m, d)` of tasks with targets."""
        shifted = {task: self.command(task)(self.output_net(task).embed(features[task]["targets"])) for task in tasks}
        decoded: dict = {}
        for group in _groups(tasks, lambda task: (shifted[task].shape[1], encoded[task][0].shape[1])):
            x = _join([shifted[task] for task in group])
            mask = _join([ops.not_equal(features[task]["targets"], 0) for task in group])
            context, context_mask = (_join([encoded[task][i] for task in group]) for i in (0, 1))
            with routing.rows(_rows(group, encoded)):
                x = self.body.decode(x, mask, context, context_mask, training)
            decoded |= {task: part for task, (part, _) in _split(group, x, mask, encoded).items()}
        return decoded

    def part_names(self):
        """Names of the attributes that hold nets and commands."""
        return self.net_names + self._command_names()

    def _command_names(self):
        return sorted({f"{s.command}_command" for s in self.signatures.values() if s.target_modality != "label"})

    def get_config(self):
        return super().get_config() | {
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


def _rows(tasks, vectors):
    """`{task: rows}` of a joined batch, or nothing where the number of rows is not known beforehand."""
    rows = {task: ops.shape(vectors[task][0])[0] for task in tasks}
    return rows if all(isinstance(number, int) for number in rows.values()) else {}


def _split(tasks, x, mask, rows):
    """Gives each task its rows of `x` and `mask`, as many as `rows[task]` has."""
    parts, start = {}, 0
    for task in tasks:
        stop = start + ops.shape(rows[task][0])[0]
        parts[task] = x[start:stop], mask[start:stop]
        start = stop
    return parts
