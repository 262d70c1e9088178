"""Adam: few operations on TensorFlow, lazy about idle experts if asked, averages of weights that suit short runs."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("multimodel")
class Adam(keras.optimizers.Adam):
    """Keras' Adam (arXiv 1412.6980) and clipping by the global norm: the same numbers in fewer operations.

    Keras updates every weight by some twenty operations, half of all that TensorFlow traces for a model of 288
    weights. TensorFlow has a kernel that does it in one, and one for the norm. On other backends all is Keras' own.

    Averages of weights (`use_ema`) are kept in another way than by Keras. Their momentum is `t / (t + 9)` at update t
    until it reaches `ema_momentum`: Keras' average would hold on to the weights of the first step for the whole of a
    short run. Between the updates of accumulated gradients they rest. And `fit` does not put them into the model at
    its end: see `multimodel.training.ema`.

    Args:
        lazy_experts: whether an expert that no position of a step chose keeps its weights and moments as they are.
            Otherwise its moments decay, and move its weights on.

    Takes the other arguments of Keras' Adam.

    Raises:
        ValueError: for `amsgrad=True`, which the kernel does not know.
    """

    def __init__(
        self, learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-7, lazy_experts=False, name="adam", **kwargs
    ):
        super().__init__(learning_rate, beta_1, beta_2, epsilon, name=name, **kwargs)
        if self.amsgrad:
            raise ValueError("This Adam has no largest moments. Received: amsgrad=True. Use keras.optimizers.Adam.")
        self.lazy_experts = lazy_experts

    def apply(self, grads, trainable_variables=None):
        step = ops.cast(self.iterations + 1, "float32")
        self._beta_powers = ops.power(self.beta_1, step), ops.power(self.beta_2, step)
        super().apply(grads, trainable_variables)

    def _clip_gradients(self, grads):
        if keras.backend.backend() != "tensorflow" or not self.global_clipnorm:
            return super()._clip_gradients(grads)
        import tensorflow as tf

        grads = [tf.cast(tf.convert_to_tensor(gradient), "float32") for gradient in grads]
        norm = tf.sqrt(2 * tf.add_n([tf.nn.l2_loss(gradient) for gradient in grads]))
        scale = tf.minimum(1.0, self.global_clipnorm / norm) + (norm - norm)  # NaN where the norm is not finite
        return [gradient * scale for gradient in grads]

    def _update_model_variables_moving_average(self, variables):
        updates, batches = ops.cast(self.iterations, "float32"), self.gradient_accumulation_steps or 1
        rate = 1 - ops.minimum(self.ema_momentum, updates / (updates + 9))
        if batches > 1:
            rate = ops.where((self._iterations + 1) % batches == 0, rate, 0.0)
        for variable, average in zip(variables, self._model_variables_moving_average, strict=True):
            self.assign_add(average, (variable - average) * ops.cast(rate, average.dtype))

    def finalize_variable_values(self, variables):
        """Leaves the weights as they are. Keras calls this at the end of `fit`."""

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        moments = self._momentums[index], self._velocities[index]
        if self.lazy_experts and _is_expert_kernel(self._trainable_variables[index]):
            self._update_used(gradient, variable, moments, learning_rate)
        elif keras.backend.backend() == "tensorflow":
            self._update_by_kernel(gradient, variable, moments, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _update_by_kernel(self, gradient, variable, moments, learning_rate):
        import tensorflow as tf

        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=moments[0].value.handle,
            v=moments[1].value.handle,
            beta1_power=self._beta_powers[0],
            beta2_power=self._beta_powers[1],
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(tf.cast(gradient, variable.dtype)),
        )

    def _update_used(self, gradient, variable, moments, learning_rate):
        """Updates the experts of kernels `(e, ...)` whose gradient is not zero throughout."""
        used = ops.any(ops.not_equal(gradient, 0), axis=(1, 2))
        rate = learning_rate * ops.sqrt(1 - self._beta_powers[1]) / (1 - self._beta_powers[0])

        def updated(gradient, weight, m, v):
            m = m + (gradient - m) * (1 - self.beta_1)
            v = v + (ops.square(gradient) - v) * (1 - self.beta_2)
            return weight - rate * m / (ops.sqrt(v) + self.epsilon), m, v

        variables = variable, *moments
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            rows = tf.where(used)[:, 0]
            after = updated(*(tf.gather(values, rows) for values in (gradient, *variables)))
            for values, new in zip(variables, after, strict=True):
                self.assign(values, tf.IndexedSlices(new, rows))
        else:  # XLA wants shapes that are known beforehand
            before = [ops.convert_to_tensor(values) for values in variables]
            for values, old, new in zip(variables, before, updated(gradient, *before), strict=True):
                values.assign(ops.where(used[:, None, None], new, old))

    def get_config(self):
        return super().get_config() | {"lazy_experts": self.lazy_experts}


def adam_of(model):
    """The Adam of a compiled model; in float16, Keras has put a LossScaleOptimizer around it."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def _is_expert_kernel(variable):
    return variable.path.endswith(("experts/expand", "experts/reduce"))
