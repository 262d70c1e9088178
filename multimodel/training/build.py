"""From a recipe to a model that is ready for `fit`."""

import dataclasses

import keras
import numpy as np

from modality_nets import AudioInputNet, ImageInputNet, LabelOutputNet, TextInputNet, TextOutputNet
from multimodel.backend import compile_for_backend
from multimodel.errors import UserError
from multimodel.model import MultiModel
from multimodel.training.adam import Adam
from multimodel.training.losses import SmoothedCrossEntropy
from multimodel.training.schedule import make_schedule

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
DEFAULT_INPUT_NETS = {
    "text": lambda signature, vocabulary_size, dim: TextInputNet(vocabulary_size, dim),
    "image": lambda signature, vocabulary_size, dim: ImageInputNet(dim),
    "audio": lambda signature, vocabulary_size, dim: AudioInputNet(dim, signature.sample_rate),
}
DEFAULT_OUTPUT_NETS: dict[str, type] = {"text": TextOutputNet, "label": LabelOutputNet}


def build_model(recipe, precision="float32"):
    """The MultiModel of a recipe, with all its weights: the nets that it gives, and a default for each other one.

    Body and nets are made anew from their configurations: their random seeds then follow the recipe's, and the recipe
    can be trained again.

    Args:
        recipe: a Recipe.
        precision: the dtype policy of the parts, one of PRECISIONS.
    """
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        model = MultiModel(
            [task.signature() for task in recipe.mixture.tasks.values()],
            _copy(recipe.body),
            _make_nets(recipe),
            learned_loss_weights=recipe.loss_weights == "uncertainty",
        )
    finally:
        keras.config.set_dtype_policy(policy)
    model.build()
    return model


def _make_nets(recipe):
    """`{name: net}` of all nets that the recipe's tasks name."""
    dim, nets = recipe.body.dim, {}
    for task in recipe.mixture.tasks.values():
        signature = task.signature()
        source, target = signature.input_net, signature.output_net
        if source not in nets and source in recipe.nets:
            nets[source] = _copy(recipe.nets[source])
        elif source not in nets:
            vocabulary_size = getattr(task.inputs, "num_classes", None)
            nets[source] = DEFAULT_INPUT_NETS[signature.input_modality](signature, vocabulary_size, dim)
        if target not in nets and target in recipe.nets:
            nets[target] = _copy(recipe.nets[target])
        elif target not in nets:
            nets[target] = DEFAULT_OUTPUT_NETS[signature.target_modality](signature.num_classes, dim)
    return nets


def _copy(layer):
    """The same layer, new. One that was made in float32 follows the policy that is now in force.

    Raises:
        UserError: if it holds a layer that Keras cannot make anew.
    """
    try:
        return type(layer).from_config(_without_float32(layer.get_config()))
    except (TypeError, NotImplementedError) as error:  # Keras' own, for an unknown class and for a missing get_config
        raise UserError(
            f"Parts of a recipe can be made from their configuration. Received: {layer.name} "
            f"({str(error).partition('Full object config')[0][:200]}). Register its classes with "
            f"keras.saving.register_keras_serializable, and give them get_config."
        ) from error


def _without_float32(config):
    """A configuration without the float32 policies of its layers."""
    if isinstance(config, list):
        return [_without_float32(part) for part in config]
    if not isinstance(config, dict):
        return config
    return {
        name: _without_float32(value)
        for name, value in config.items()
        if name != "dtype" or keras.dtype_policies.get(value).name != "float32"
    }


def rematerialised(recipe):
    """The recipe with a body whose blocks, where they can, compute their inside again for the gradient.

    Raises:
        UserError: if none of them can.
    """
    body = _copy(recipe.body)
    blocks = [block for block in (*body.encoder, *body.mixer, *body.decoder) if hasattr(block, "remat")]
    if not blocks:
        raise UserError(
            "Some blocks can compute their inside again. Received: remat=True for a body without any such. "
            "Use ConvBlocks or AttentionBlocks in it, or leave remat out."
        )
    for block in blocks:
        block.remat = True
    return dataclasses.replace(recipe, body=body)


def compile_model(model, recipe, batch, xla="auto"):
    """Compiles, and builds optimizer, losses and metrics by one example of `batch`.

    Whatever is built inside the first step makes TensorFlow trace the whole step twice. In float16, Keras scales the
    loss, and its LossScaleOptimizer takes the scale off again before Adam clips.
    """
    tasks = list(model.signatures)
    fixed = {} if model.learned_loss_weights else recipe.loss_weights
    learned = model.loss_weights()
    compile_for_backend(
        model,
        optimizer=_make_optimizer(recipe),
        loss={task: SmoothedCrossEntropy(recipe.label_smoothing, learned.get(task)) for task in tasks},
        loss_weights={task: fixed.get(task, 1.0) for task in tasks},
        xla=xla,
        weighted_metrics={task: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")] for task in tasks},
    )
    model.optimizer.build(model.trainable_variables)
    _, y, w = batch
    y, w = ({task: values[:1] for task, values in part.items()} for part in (y, w))
    logits = {task: np.zeros((*y[task].shape, model.signatures[task].num_classes), "float32") for task in tasks}
    model.compute_loss(y=y, y_pred=logits, sample_weight=w)
    model.compute_metrics(None, y, logits, sample_weight=w)
    model.reset_metrics()


def _make_optimizer(recipe):
    return Adam(
        make_schedule(recipe),
        beta_1=recipe.betas[0],
        beta_2=recipe.betas[1],
        epsilon=recipe.epsilon,
        lazy_experts=recipe.lazy_experts,
        global_clipnorm=recipe.clipnorm,
        gradient_accumulation_steps=recipe.accumulation_steps if recipe.accumulation_steps > 1 else None,
        use_ema=recipe.ema > 0,
        ema_momentum=recipe.ema,
    )
