"""Programs of other authors, in their idiom, give the numbers of one device.

Each names the repository and the files whose structure and names it keeps, on tiny models; those of
SimCLR, TensorFlowASR and Dreamer are under the Apache and MIT licenses.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
from keras import layers, ops

import distlab as dl


def mirrored(replicas: int = 2) -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)])


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def made_of(layer: type[Any], seed: int, shape: tuple[int, ...], *args: Any, **options: Any) -> Any:
    def kernel(shape: tuple[int, ...], dtype: Any = None) -> Any:
        return 0.5 * normal(seed, *shape)

    return keras.Sequential(
        [keras.Input(shape), layer(*args, kernel_initializer=kernel, **options)]
    )


def dense(seed: int, inputs: int, units: int, activation: str | None = None) -> Any:
    return made_of(layers.Dense, seed, (inputs,), units, activation)


def arrays_of(variables: Any) -> list[Any]:
    return [v.value for v in variables]


def assign(variables: Any, values: Any) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


class Plain:
    """Training of `variables` on one device, by plain Keras on JAX; the loss reads `others`."""

    def __init__(self, optimizer: Any, loss_fn: Any, variables: Any, others: Any = ()) -> None:
        self.optimizer, self.variables, self.others = optimizer, list(variables), list(others)
        optimizer.build(self.variables)

        def of_values(values: Any, others: Any, *args: Any) -> Any:
            pairs = zip([*self.variables, *self.others], [*values, *others], strict=True)
            with keras.StatelessScope(list(pairs)) as scope:
                loss = loss_fn(*args)
            return loss, [scope.get_current_value(v) for v in self.others]

        self.compiled = jax.jit(jax.value_and_grad(of_values, has_aux=True))
        self.update = jax.jit(optimizer.stateless_apply)

    def gradients(self, *args: Any) -> Any:
        values, others = arrays_of(self.variables), arrays_of(self.others)
        (loss, others), gradients = self.compiled(values, others, *args)
        assign(self.others, others)
        return loss, gradients

    def apply(self, gradients: Any) -> None:
        state, values = arrays_of(self.optimizer.variables), arrays_of(self.variables)
        values, state = self.update(state, gradients, values)
        assign(self.variables, values)
        assign(self.optimizer.variables, state)

    def step(self, *args: Any) -> float:
        loss, gradients = self.gradients(*args)
        self.apply(gradients)
        return float(loss)


def weights(*models: Any) -> list[Any]:
    return [np.asarray(weight) for model in models for weight in model.get_weights()]


def assert_same(actual: Any, expected: Any) -> None:
    def check(one: Any, other: Any) -> None:
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)

    jax.tree.map(check, actual, expected)


# danijar/dreamer: three optimizers, each clipping by the global norm, with weight decay in a
# merge_call; metrics that replica 0 alone updates.

DREAMER = {"model": ("encode", "reward"), "actor": ("actor",), "value": ("value",)}


def dreamer_nets() -> dict[str, Any]:
    nets = {"encode": dense(0, 5, 4, "tanh"), "actor": dense(1, 4, 4)}
    return {**nets, "reward": dense(2, 4, 1), "value": dense(3, 4, 1)}


def dreamer_variables(nets: dict[str, Any], name: str) -> list[Any]:
    return [v for module in DREAMER[name] for v in nets[module].trainable_variables]


def dreamer_model_loss(nets: dict[str, Any], data: Any) -> Any:
    post = nets["encode"](data["image"])
    return 4 * ops.mean(ops.square(nets["reward"](post)[:, 0] - data["reward"])), post


def dreamer_actor_loss(nets: dict[str, Any], post: Any) -> Any:
    imag_feat = ops.tanh(post + nets["actor"](ops.stop_gradient(post)))
    returns = nets["reward"](imag_feat) + 0.9 * nets["value"](imag_feat)
    return -ops.mean(returns), (imag_feat, returns)


def dreamer_value_loss(nets: dict[str, Any], imag_feat: Any, returns: Any) -> Any:
    value_pred = nets["value"](imag_feat)
    return ops.mean(ops.square(value_pred - ops.stop_gradient(returns))), None


def clip_by_global_norm(grads: list[Any], clip: float) -> tuple[list[Any], Any]:
    norm = ops.sqrt(sum(ops.sum(ops.square(grad)) for grad in grads))
    return [grad * clip / ops.maximum(norm, clip) for grad in grads], norm


class DreamerAdam:
    """`tools.Adam`; where its call took a tape, `tape` takes a function."""

    def __init__(self, name: str, variables: list[Any], lr: float) -> None:
        self._name, self._variables, self._opt = name, variables, keras.optimizers.Adam(lr)
        self._clip, self._wd, self._wdpattern = 0.5, 0.01, r"model/kernel"

    def tape(self, loss_fn: Callable[..., Any], *args: Any) -> Any:
        def scaled() -> Any:
            loss, aux = loss_fn(*args)
            return loss / float(dl.get_strategy().num_replicas_in_sync), aux

        return dl.keras.value_and_grad(scaled, self._variables, has_aux=True)

    def __call__(self, grads: list[Any]) -> Any:
        grads, norm = clip_by_global_norm(grads, self._clip)
        context = dl.get_replica_context()
        context.merge_call(self._apply_weight_decay)
        self._opt.apply_gradients(zip(grads, self._variables, strict=True))
        return norm

    def _apply_weight_decay(self, strategy: Any) -> None:
        for var in self._variables:
            if re.search(self._wdpattern, self._name + "/" + var.name):
                strategy.extended.update(var, lambda var: var.assign((1 - self._wd) * var))


class Dreamer:
    def __init__(self, dataset: dl.data.Dataset) -> None:
        self._metrics: Any = collections.defaultdict(keras.metrics.Mean)
        self._strategy = mirrored()
        with self._strategy.scope():
            self._dataset = iter(self._strategy.experimental_distribute_dataset(dataset))
            self._nets = dreamer_nets()
            self._opts = {
                k: DreamerAdam(k, dreamer_variables(self._nets, k), 0.02) for k in DREAMER
            }
            for name in DREAMER:  # the first step makes them there
                self._metrics[f"{name}_grad_norm"].reset_state()
            self._metrics["model_loss"].reset_state()
            # Do a train step to initialize all variables, including optimizer statistics.
            self.train(next(self._dataset))

    def train(self, data: Any) -> None:
        self._strategy.run(self._train, args=(data,))

    def _train(self, data: Any) -> None:
        (loss, post), model = self._opts["model"].tape(dreamer_model_loss, self._nets, data)
        (_, imagined), actor = self._opts["actor"].tape(dreamer_actor_loss, self._nets, post)
        _, value = self._opts["value"].tape(dreamer_value_loss, self._nets, *imagined)
        norms = {"model": model, "actor": actor, "value": value}
        norms = {name: self._opts[name](grads) for name, grads in norms.items()}
        first = dl.get_replica_context().replica_id_in_sync_group == 0  # `if first:` there
        self._metrics["model_loss"].update_state(loss, sample_weight=first)
        for name, norm in norms.items():
            self._metrics[f"{name}_grad_norm"].update_state(norm, sample_weight=first)


def test_dreamer_clips_and_decays_as_one_device_does() -> None:
    """Ports github.com/danijar/dreamer, dreamer.py (`_train`) and tools.py (`Adam`)."""
    data = {"image": normal(0, 24, 5), "reward": normal(1, 24)}
    agent = Dreamer(dl.data.Dataset.from_tensor_slices(data).batch(8, drop_remainder=True))
    with agent._strategy.scope():
        for batch in agent._dataset:
            agent.train(batch)

    nets, seen = dreamer_nets(), collections.defaultdict[str, list[float]](list)
    everything = [v for net in nets.values() for v in net.trainable_variables]

    def trained(name: str, loss_fn: Any) -> Plain:
        own = dreamer_variables(nets, name)
        others = [v for v in everything if all(v is not w for w in own)]
        adam = keras.optimizers.Adam(0.02)
        return Plain(adam, lambda *args: loss_fn(nets, *args)[0] / 2, own, others)

    losses: Any = (dreamer_model_loss, dreamer_actor_loss, dreamer_value_loss)
    trainings = {k: trained(k, loss_fn) for k, loss_fn in zip(DREAMER, losses, strict=True)}

    def clipped(part: Any) -> dict[str, Any]:  # each replica clips its own gradients
        post = dreamer_model_loss(nets, part)[1]
        imagined, halves = dreamer_actor_loss(nets, post)[1], {}
        for (name, plain), args in zip(
            trainings.items(), ((part,), (post,), imagined), strict=True
        ):
            loss, grads = plain.gradients(*args)
            halves[name], norm = clip_by_global_norm(grads, 0.5)
            seen[f"{name}_loss"].append(float(loss))
            seen[f"{name}_grad_norm"].append(float(norm))
        return halves

    for start in (0, 8, 16):
        halves = [clipped({k: v[n : n + 4] for k, v in data.items()}) for n in (start, start + 4)]
        for v in trainings["model"].variables:
            v.assign(0.99 * v if v.name == "kernel" else v)
        for name, plain in trainings.items():
            plain.apply(jax.tree.map(jnp.add, *(half[name] for half in halves)))
    assert max(seen["model_grad_norm"]) > 0.5 > min(seen["value_grad_norm"])
    for name, metric in agent._metrics.items():
        assert_same(float(metric.result()), float(np.mean(seen[name][::2])))
    assert_same(weights(*agent._nets.values()), weights(*nets.values()))


# google-research/simclr: a loss over the examples of all replicas, synchronized batch
# normalization, several steps in one call, and checkpoints that training goes on from.


def simclr_model(*, synchronized: bool) -> Any:
    norm = layers.BatchNormalization(momentum=0.9, synchronized=synchronized)
    return keras.Sequential([keras.Input((6,)), dense(0, 6, 8, "tanh"), norm, dense(1, 8, 5)])


class WarmUpAndCosineDecay(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    def __call__(self, step: Any) -> Any:
        step, base_learning_rate, warmup_steps = ops.cast(step, "float32"), 0.3, 2
        cosine_decay = keras.optimizers.schedules.CosineDecay(base_learning_rate, 4)
        learning_rate = step / float(warmup_steps) * base_learning_rate
        decayed = cosine_decay(step - warmup_steps)
        return ops.where(step < warmup_steps, learning_rate, decayed)


def add_contrastive_loss(hidden: Any, temperature: float, strategy: Any = None) -> Any:
    hidden1, hidden2 = ops.split(ops.normalize(hidden, -1), 2, 0)
    batch_size, replica_id = hidden1.shape[0], 0
    hidden1_large, hidden2_large = hidden1, hidden2
    if strategy is not None:
        hidden1_large = tpu_cross_replica_concat(hidden1, strategy)
        hidden2_large = tpu_cross_replica_concat(hidden2, strategy)
        replica_id = dl.get_replica_context().replica_id_in_sync_group
    enlarged_batch_size = hidden1_large.shape[0]
    labels_idx = jnp.arange(batch_size) + replica_id * batch_size
    labels = ops.one_hot(labels_idx, enlarged_batch_size * 2)
    masks = ops.one_hot(labels_idx, enlarged_batch_size) * 1e9
    logits_aa = hidden1 @ hidden1_large.T / temperature - masks
    logits_bb = hidden2 @ hidden2_large.T / temperature - masks
    logits_ab = hidden1 @ hidden2_large.T / temperature
    logits_ba = hidden2 @ hidden1_large.T / temperature
    cross_entropy = optax.softmax_cross_entropy
    loss_a = cross_entropy(ops.concatenate([logits_ab, logits_aa], 1), labels)
    loss_b = cross_entropy(ops.concatenate([logits_ba, logits_bb], 1), labels)
    return ops.mean(loss_a + loss_b)


def tpu_cross_replica_concat(tensor: Any, strategy: Any) -> Any:
    replica_context = dl.get_replica_context()
    ext_tensor = jnp.zeros((strategy.num_replicas_in_sync, *tensor.shape))
    ext_tensor = ext_tensor.at[replica_context.replica_id_in_sync_group].set(tensor)
    ext_tensor = replica_context.all_reduce(dl.ReduceOp.SUM, ext_tensor)
    return ext_tensor.reshape(-1, *ext_tensor.shape[2:])


def simclr_loss(model: Any, features: Any, strategy: Any = None) -> Any:
    features = ops.concatenate(ops.split(features, 2, -1), 0)  # (num_transforms * bsz, c)
    outputs = model(features, training=True)
    con_loss = add_contrastive_loss(outputs, 0.5, strategy)
    kernels = [v for v in model.trainable_variables if "batch_normalization" not in v.path]
    weight_decay = 1e-2 * sum(ops.sum(ops.square(v)) / 2 for v in kernels)
    return con_loss + weight_decay


def simclr(ds: dl.data.Dataset, model_dir: Path, train_steps: int) -> tuple[Any, list[Any]]:
    """`main` of run.py."""
    strategy, steps_per_loop, logged = mirrored(), 2, []
    with strategy.scope():
        model = simclr_model(synchronized=True)
        optimizer = keras.optimizers.SGD(WarmUpAndCosineDecay(), momentum=0.9, nesterov=True)
        optimizer.build(model.trainable_variables)  # the first step does it there
        total_loss_metric = keras.metrics.Mean("train/total_loss")
        checkpoint_manager = dl.train.CheckpointManager(
            dl.train.Checkpoint(model=model, global_step=optimizer.iterations, optimizer=optimizer),
            model_dir,
            max_to_keep=5,
        )
        latest_ckpt = checkpoint_manager.latest_checkpoint
        if latest_ckpt:
            checkpoint_manager.checkpoint.restore(latest_ckpt).expect_partial()

    def single_step(_: None, features: Any) -> tuple[None, None]:
        def loss_fn() -> Any:
            loss = simclr_loss(model, features, strategy)
            return loss / strategy.num_replicas_in_sync, loss

        (_, loss), grads = dl.keras.value_and_grad(loss_fn, model.trainable_variables, has_aux=True)
        total_loss_metric.update_state(loss)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return None, None

    def train_multiple_steps(*batches: Any) -> None:
        dl.scan(single_step, None, jnp.stack(batches))

    global_step = optimizer.iterations
    iterator = iter(strategy.experimental_distribute_dataset(ds))
    while (cur_step := global_step.numpy()) < train_steps:
        strategy.run(train_multiple_steps, [next(iterator) for _ in range(steps_per_loop)])
        checkpoint_manager.save(cur_step + steps_per_loop)
        logged.append(float(total_loss_metric.result()))
        total_loss_metric.reset_state()
    return model, logged


def test_simclr_contrasts_all_replicas_and_resumes(tmp_path: Path) -> None:
    """Ports github.com/google-research/simclr, tf2/run.py, tf2/objective.py, tf2/model.py."""
    features = normal(0, 16, 12)
    ds = dl.data.Dataset.from_tensor_slices(features).batch(8).repeat()
    _, logged = simclr(ds, tmp_path, 2)
    model, resumed = simclr(ds, tmp_path, 6)

    plain = simclr_model(synchronized=False)
    optimizer = keras.optimizers.SGD(WarmUpAndCosineDecay(), momentum=0.9, nesterov=True)
    trained, statistics = plain.trainable_variables, plain.non_trainable_variables
    training = Plain(optimizer, partial(simclr_loss, plain), trained, statistics)
    expected = [training.step(rows) for rows in (features[:8], features[8:]) * 3]
    assert_same([*logged, *resumed], np.reshape(expected, (3, 2)).mean(1).tolist())
    assert_same(weights(model), weights(plain))


# bryanlimy/tf2-cyclegan: four models with an optimizer each, and one tape for all of them; a
# program that goes on with its last epoch's checkpoint.


def mean_of(error: Callable[[Any], Any], y_true: Any, y_pred: Any) -> Any:
    return ops.mean(error(y_true - y_pred), axis=1)


class CycleGAN:
    global_batch_size, lambda_cycle, lambda_identity = 4, 10.0, 5.0

    def __init__(self, strategy: dl.Strategy, seed: int) -> None:
        self.strategy = strategy
        with self.strategy.scope():
            self.models = {name: dense(seed + n, 6, 6) for n, name in enumerate("GFXY")}
            adam = partial(keras.optimizers.Adam, 2e-3, beta_1=0.5, beta_2=0.9)
            self.optimizers = {f"{name}_optimizer": adam() for name in self.models}
            for name, model in self.models.items():  # the first step does it there
                self.optimizers[f"{name}_optimizer"].build(model.trainable_variables)
            self.checkpoint = dl.train.Checkpoint(**self.models, **self.optimizers)

    def reduce_mean(self, inputs: Any) -> Any:
        return ops.sum(inputs) / self.global_batch_size

    def discriminator_loss(self, real: Any, fake: Any) -> Any:
        real_loss = mean_of(ops.square, ops.ones_like(real), real)
        fake_loss = mean_of(ops.square, ops.zeros_like(fake), fake)
        return self.reduce_mean(0.5 * (real_loss + fake_loss))

    def generator_loss(self, gen: Any, dis: Any, real: Any, fake: Any, other: Any) -> Any:
        loss = self.reduce_mean(mean_of(ops.square, ops.ones_like(dis(fake)), dis(fake)))
        cycle_loss = self.reduce_mean(mean_of(ops.abs, real, gen(other)))
        identity_loss = self.reduce_mean(mean_of(ops.abs, real, gen(real)))
        return loss + self.lambda_cycle * cycle_loss + self.lambda_identity * identity_loss

    def losses(self, x: Any, y: Any) -> dict[str, Any]:
        G, F, X, Y = (partial(self.models[name], training=True) for name in "GFXY")  # noqa: N806
        fake_y, fake_x = G(x), F(y)
        return {
            "G": self.generator_loss(G, Y, y, fake_y, fake_x),
            "F": self.generator_loss(F, X, x, fake_x, fake_y),
            "X": self.discriminator_loss(X(x), X(fake_x)),
            "Y": self.discriminator_loss(Y(y), Y(fake_y)),
        }

    def loss(self, name: str, x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
        result = self.losses(x, y)
        return result[name], result

    def train_step(self, x: Any, y: Any) -> dict[str, Any]:
        result, gradients = {}, {}
        for name, model in self.models.items():  # one persistent tape there
            (_, result), gradients[name] = dl.keras.value_and_grad(
                partial(self.loss, name, x, y), model.trainable_variables, has_aux=True
            )
        for name, model in self.models.items():
            optimizer = self.optimizers[f"{name}_optimizer"]
            optimizer.apply_gradients(zip(gradients[name], model.trainable_variables, strict=True))
        return result

    def distributed_train_step(self, x: Any, y: Any) -> dict[str, Any]:
        results = self.strategy.run(self.train_step, args=(x, y))
        return {k: self.strategy.reduce("SUM", v, axis=None) for k, v in results.items()}


def cyclegan(ds: Any, seed: int, output_dir: Path, epochs: int) -> tuple[CycleGAN, list[Any]]:
    """`main`: returns the results of each step."""
    strategy, results = mirrored(), []
    gan, train_ds = CycleGAN(strategy, seed), strategy.experimental_distribute_dataset(ds)
    checkpoints = sorted(output_dir.glob("epoch-*"))
    epoch = int(checkpoints[-1].name[-3:]) if checkpoints else -1
    if checkpoints:
        gan.checkpoint.read(checkpoints[-1])
    while (epoch := epoch + 1) < epochs:
        results += [gan.distributed_train_step(x, y) for x, y in train_ds]
        gan.checkpoint.write(output_dir / f"epoch-{epoch:03d}")
    return gan, results


def test_cyclegan_trains_four_models_as_one_device_does(tmp_path: Path) -> None:
    """Ports github.com/bryanlimy/tf2-cyclegan, main.py."""
    horses, zebras = (dl.data.Dataset.from_tensor_slices(normal(n, 8, 6)) for n in (0, 1))
    ds = dl.data.Dataset.zip((horses.cache().batch(4), zebras.cache().batch(4))).prefetch(2)
    _, results = cyclegan(ds, 0, tmp_path, 1)
    gan, more = cyclegan(ds, 100, tmp_path, 2)  # with the weights of the checkpoint

    plain, expected = CycleGAN(dl.get_strategy(), 0), []
    trainings = []
    for name, model in plain.models.items():
        others = [v for m in plain.models.values() if m is not model for v in m.trainable_variables]
        loss_fn = partial(lambda name, x, y: plain.loss(name, x, y)[0], name)
        optimizer = plain.optimizers[f"{name}_optimizer"]
        trainings.append(Plain(optimizer, loss_fn, model.trainable_variables, others))
    for _ in range(2):
        for x, y in ds:
            both = [training.gradients(x, y) for training in trainings]
            expected.append(dict(zip(plain.models, (loss for loss, _ in both), strict=True)))
            for training, (_, gradients) in zip(trainings, both, strict=True):
                training.apply(gradients)
    assert_same([*results, *more], expected)
    assert_same(weights(*gan.models.values()), weights(*plain.models.values()))


# moono/stylegan2-tf-2.x: lazy regularization by gradients of gradients, moving averages that
# each replica keeps, and a moving average of the generator.


class StyleGenerator(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.g_mapping, self.synthesis = dense(0, 3, 4, "tanh"), dense(1, 4, 6, "tanh")
        kinds = {"synchronization": "on_read", "aggregation": "only_first_replica"}
        self.w_avg = keras.Variable(np.zeros(4, "f4"), trainable=False, name="w_avg", **kinds)

    def call(self, z: Any, training: bool = False) -> Any:
        w = self.g_mapping(z)
        if training:
            self.w_avg.assign(lerp(ops.mean(w, axis=0), self.w_avg, 0.9))
        return self.synthesis(w), w

    def set_as_moving_average_of(self, src_net: Any) -> None:
        for cw, sw in zip(self.weights, src_net.weights, strict=True):
            cw.assign(lerp(sw, cw, 0.0 if "w_avg" in cw.name else 0.99))


def lerp(a: Any, b: Any, t: float) -> Any:
    return a + (b - a) * t


def r1_penalty(discriminator: Any, real_images: Any) -> Any:
    real_grads = jax.grad(lambda images: ops.sum(discriminator(images)))(real_images)
    return ops.sum(ops.square(real_grads), axis=1)


def path_lengths(generator: Any, w: Any, pl_noise: Any) -> Any:
    pl_grads = jax.grad(lambda w: ops.sum(generator.synthesis(w) * pl_noise))(w)
    return ops.sqrt(ops.sum(ops.square(pl_grads), axis=1))


class StyleTrainer:
    global_batch_scaler, r1_gamma, pl_decay, pl_weight = 1 / 8, 10.0, 0.5, 2.0

    def __init__(self) -> None:
        on_read = dl.VariableSynchronization.ON_READ
        first = dl.VariableAggregation.ONLY_FIRST_REPLICA
        self.pl_mean = dl.Variable(0.0, synchronization=on_read, aggregation=first)
        self.discriminator = dense(2, 6, 1)
        self.generator, self.g_clone = StyleGenerator(), StyleGenerator()
        self.g_clone.set_weights(self.generator.get_weights())
        adam = partial(keras.optimizers.Adam, 0.01, beta_1=0.0, beta_2=0.99)
        self.d_optimizer, self.g_optimizer = adam(), adam()

    def d_loss(self, reg_interval: int, real_images: Any, z: Any, _: Any) -> Any:
        fake_scores = self.discriminator(self.generator(z, training=True)[0])
        d_gan_loss = ops.softplus(fake_scores) + ops.softplus(-self.discriminator(real_images))
        d_loss = ops.sum(d_gan_loss) * self.global_batch_scaler
        if reg_interval:
            penalty = r1_penalty(self.discriminator, real_images)
            penalty = penalty * (0.5 * self.r1_gamma) * reg_interval
            d_loss += ops.sum(penalty) * self.global_batch_scaler
        return d_loss

    def g_loss(self, reg_interval: int, _: Any, z: Any, pl_noise: Any) -> Any:
        fake_images, w = self.generator(z, training=True)
        g_gan_loss = ops.softplus(-self.discriminator(fake_images))
        g_loss = ops.sum(g_gan_loss) * self.global_batch_scaler
        if reg_interval:
            pl_lengths = path_lengths(self.generator, w, pl_noise)
            # Track exponential moving average of |J*y|; calculate (|J*y|-a)^2.
            self.pl_mean.assign_add(self.pl_decay * (ops.mean(pl_lengths) - self.pl_mean))
            pl_penalty = ops.square(pl_lengths - self.pl_mean) * self.pl_weight * reg_interval
            g_loss += ops.sum(pl_penalty) * self.global_batch_scaler
        return g_loss

    def d_train_step(self, reg_interval: int, inputs: Any) -> Any:
        variables = self.discriminator.trainable_variables
        loss, grads = dl.keras.value_and_grad(lambda: self.d_loss(reg_interval, *inputs), variables)
        self.d_optimizer.apply_gradients(zip(grads, variables, strict=True))
        return loss

    def g_train_step(self, reg_interval: int, inputs: Any) -> Any:
        variables = self.generator.trainable_variables
        loss, grads = dl.keras.value_and_grad(lambda: self.g_loss(reg_interval, *inputs), variables)
        self.g_optimizer.apply_gradients(zip(grads, variables, strict=True))
        return loss

    def train(self, dist_datasets: Any, strategy: dl.Strategy) -> list[Any]:
        losses = []
        for inputs in dist_datasets:
            step = int(self.g_optimizer.iterations.numpy())
            for train_step, interval in ((self.d_train_step, 2), (self.g_train_step, 3)):
                reg_interval = interval if (step + 1) % interval == 0 else 0
                loss = strategy.run(partial(train_step, reg_interval), args=(inputs,))
                losses.append(float(strategy.reduce("SUM", loss, axis=None)))
            self.g_clone.set_as_moving_average_of(self.generator)
        return losses


def test_stylegan_regularizes_lazily_as_one_device_does() -> None:
    """Ports github.com/moono/stylegan2-tf-2.x, train.py, losses.py, stylegan2/generator.py.

    Random numbers come with the batch. What a variable holds is a constant to the gradient, also
    where the loss has just assigned it (`pl_mean`).
    """
    arrays = normal(0, 48, 6), normal(1, 48, 3), normal(2, 48, 6)
    strategy = mirrored()
    with strategy.scope():
        trainer = StyleTrainer()
    dataset = dl.data.Dataset.from_tensor_slices(arrays).batch(8)
    losses = trainer.train(strategy.experimental_distribute_dataset(dataset), strategy)

    g, clone, d = StyleGenerator(), StyleGenerator(), dense(2, 6, 1)
    d_optimizer, g_optimizer = (keras.optimizers.Adam(0.01, 0.0, 0.99) for _ in range(2))
    pl_mean, expected = np.zeros((2, 1), "f4"), []

    def d_loss(images: Any, z: Any, regularized: bool) -> Any:
        loss = ops.softplus(d(g(z)[0])) + ops.softplus(-d(images))
        return (ops.sum(loss) + 10 * regularized * ops.sum(r1_penalty(d, images))) / 8

    def g_loss(z: Any, noise: Any, pl_mean: Any, regularized: bool) -> Any:
        fake_images, w = g(z)
        lengths = ops.reshape(path_lengths(g, w, noise), (2, 4))  # of each replica
        penalty = 6 * regularized * ops.sum(ops.square(lengths - pl_mean))
        return (ops.sum(ops.softplus(-d(fake_images))) + penalty) / 8

    plain_d = Plain(d_optimizer, d_loss, d.trainable_variables, g.variables)
    plain_g = Plain(g_optimizer, g_loss, g.trainable_variables, d.variables)
    for step in range(6):
        images, z, noise = (array[8 * step : 8 * step + 8] for array in arrays)
        w = g(z)[1]
        for _ in range(2):  # in the steps of both models; outside it is that of replica 0
            g.w_avg.assign(lerp(ops.mean(w[:4], 0), g.w_avg, 0.9))
        expected.append(plain_d.step(images, z, step % 2 == 1))
        if step % 3 == 2:
            lengths = np.reshape(path_lengths(g, w, noise), (2, 4))
            pl_mean = (pl_mean + lengths.mean(1, keepdims=True)) / 2
        expected.append(plain_g.step(z, noise, pl_mean, step % 3 == 2))
        clone.set_as_moving_average_of(g)
    assert_same(losses, expected)
    assert_same(trainer.pl_mean.numpy(), pl_mean[0, 0])
    trained = weights(trainer.discriminator, trainer.generator, trainer.g_clone)
    assert_same(trained, weights(d, g, clone))


# TensorSpeech/TensorFlowASR: gradients that each replica adds up over some steps, a schedule that
# warms up, padded batches, and an evaluation in which some replicas have no example.


class GradientAccumulation:
    def __init__(self, trainable_variables: list[Any]) -> None:
        on_read = dl.VariableSynchronization.ON_READ
        self.gradients = [
            dl.Variable(jnp.zeros(g.shape), synchronization=on_read) for g in trainable_variables
        ]

    def reset(self) -> None:
        for g in self.gradients:
            g.assign(jnp.zeros_like(g))

    def accumulate(self, step_gradients: list[Any]) -> None:
        for i, g in enumerate(step_gradients):
            self.gradients[i].assign_add(g)


class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    def __call__(self, step: Any) -> Any:
        step, d_model, warmup_steps = ops.cast(step, "float32"), 4, 3
        return d_model**-0.5 * ops.minimum(ops.rsqrt(step), step * warmup_steps**-1.5)


class CTCTrainerGA:
    accumulation_steps, global_batch_size, blank, time_reduction_factor = 2, 8, 0, 2

    def __init__(self, strategy: dl.Strategy) -> None:
        self.strategy, self.steps = strategy, dl.Variable(0, trainable=False)
        with self.strategy.scope():
            self.train_metrics = {"ctc_loss": keras.metrics.Mean("train_ctc_loss")}
            self.eval_metrics = {"ctc_loss": keras.metrics.Mean("eval_ctc_loss")}
            self.model = speech_model()
            self.optimizer = keras.optimizers.Adam(TransformerSchedule())
            self.accumulation = GradientAccumulation(self.model.trainable_variables)

    def _train_epoch(self, train_data_loader: Any) -> None:
        train_iterator = iter(train_data_loader)
        while True:
            try:
                self._train_function(train_iterator)
            except StopIteration:
                break
            self.steps.assign_add(1)

    def _train_function(self, iterator: Iterator[Any]) -> None:
        for _ in range(self.accumulation_steps):
            batch = next(iterator)
            self.strategy.run(self._train_step, args=(batch,))
        self.strategy.run(self._apply_gradients, args=())

    def _apply_gradients(self) -> None:
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(self.accumulation.gradients, variables, strict=True))
        self.accumulation.reset()

    def _ctc_loss(self, batch: Any, training: bool) -> Any:
        features, input_length, labels, label_length = batch
        y_pred = self.model(features, training=training)
        reduced_length = -(-input_length // self.time_reduction_factor)
        return ops.ctc_loss(labels, y_pred, label_length, reduced_length, mask_index=self.blank)

    def _train_step(self, batch: Any) -> None:
        def loss_fn() -> Any:
            per_train_loss = self._ctc_loss(batch, training=True)
            size = self.global_batch_size
            return dl.nn.compute_average_loss(
                per_train_loss, global_batch_size=size
            ), per_train_loss

        (_, per_train_loss), gradients = dl.keras.value_and_grad(
            loss_fn, self.model.trainable_variables, has_aux=True
        )
        self.accumulation.accumulate(gradients)
        self.train_metrics["ctc_loss"].update_state(per_train_loss)

    def _eval_step(self, batch: Any) -> None:
        self.eval_metrics["ctc_loss"].update_state(self._ctc_loss(batch, training=False))


def speech_model() -> Any:
    conv = made_of(layers.Conv1D, 0, (12, 5), 8, 3, 2, "same", activation="tanh")
    return keras.Sequential([keras.Input((12, 5)), conv, made_of(layers.Dense, 1, (6, 8), 4)])


def speech_dataset(count: int, seed: int) -> dl.data.Dataset:
    def utterances() -> Iterator[tuple[Any, int, Any, int]]:
        rng = np.random.default_rng(seed)
        for _ in range(count):
            frames, words = int(rng.integers(10, 13)), int(rng.integers(1, 4))
            labels = rng.integers(1, 4, words).astype("int32")
            yield rng.normal(size=(frames, 5)).astype("float32"), frames, labels, words

    spec = partial(dl.data.TensorSpec, dtype="int32")
    signature = (dl.data.TensorSpec([None, 5], "float32"), spec([]), spec([None]), spec([]))
    dataset = dl.data.Dataset.from_generator(utterances, output_signature=signature)
    return dataset.padded_batch(8, padded_shapes=([12, 5], [], [3], []))


def test_ctc_training_accumulates_gradients_per_replica() -> None:
    """Ports github.com/TensorSpeech/TensorFlowASR (0.5), tensorflow_asr/runners, optimizers."""
    train, evaluation = speech_dataset(32, 0), speech_dataset(6, 1)
    strategy = mirrored(4)
    trainer, losses = CTCTrainerGA(strategy), []
    for _ in range(2):
        trainer._train_epoch(strategy.experimental_distribute_dataset(train))
        for batch in strategy.experimental_distribute_dataset(evaluation):
            strategy.run(trainer._eval_step, args=(batch,))
        for metric in (*trainer.train_metrics.values(), *trainer.eval_metrics.values()):
            losses.append(float(metric.result()))
            metric.reset_state()

    model, expected = speech_model(), []
    optimizer = keras.optimizers.Adam(TransformerSchedule())

    def ctc_loss(*batches: Any) -> Any:
        features, frames, labels, words = map(jnp.concatenate, zip(*batches, strict=True))
        time, place = np.arange(6) >= -(-frames[:, None] // 2), np.arange(3) >= words[:, None]
        return optax.ctc_loss(model(features), time.astype("f4"), labels, place.astype("f4"))

    def mean_loss(*pair: Any) -> Any:
        return ops.sum(ctc_loss(*pair)) / 8

    plain = Plain(optimizer, mean_loss, model.trainable_variables)
    for _ in range(2):
        first, second, *rest = train
        seen = plain.step(first, second) + plain.step(*rest)
        expected += [seen / 4, float(plain.gradients(*evaluation)[0]) * 8 / 6]
    assert int(trainer.steps) == 4
    assert_same(losses, expected)
    assert_same(weights(trainer.model), weights(model))
