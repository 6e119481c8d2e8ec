"""Programs that train something else than they should, and near-twins that are right.

Each takes some steps on tiny data. `expected` is the cause and the subject that advice has to name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import nnx
from flax.training.train_state import TrainState

import distlab as dl

STEPS = 7
NUMBERS = np.random.default_rng(7)
X = NUMBERS.normal(size=(STEPS * 24, 6)).astype(np.float32)
Y = (X @ NUMBERS.normal(size=(6, 2))).astype(np.float32)
ON_READ = dl.VariableSynchronization.ON_READ


def mirrored(replicas: int = 2, **options: Any) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)], **options)


def batches(strategy: Any, size: int = 24) -> Iterator[Any]:
    dataset = dl.data.Dataset.from_tensor_slices((X, Y)).shuffle(len(X), seed=1).batch(size)
    return iter(strategy.experimental_distribute_dataset(dataset))


def reduce(op: str, tree: Any) -> Any:
    return dl.get_replica_context().all_reduce(op, tree)


def own_key(key: Any) -> Any:
    return jax.random.fold_in(key, dl.get_replica_context().replica_id_in_sync_group)


def mean_loss(weights: Any, x: Any, y: Any) -> Any:
    return jnp.mean((x @ weights["kernel"] + weights["bias"] - y) ** 2)


def start() -> Any:
    return {"kernel": jnp.zeros((6, 2)), "bias": jnp.zeros((2,))}


def descend(weights: Any, grads: Any, rate: float = 0.1) -> Any:
    return jax.tree.map(lambda w, g: w - rate * g, weights, grads)


# --- variables -----------------------------------------------------------------------------------


def with_variables(
    strategy: Any, gradients: Callable[[Any, Any, Any], Any], rate: float = 0.1, size: int = 24
) -> None:
    """The custom loop of TensorFlow's guide, with the gradients that a function returns."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")
        bias = dl.Variable(jnp.zeros((2,)), name="bias")

    def train_step(inputs: Any) -> Any:
        x, y = inputs
        weights = {"kernel": kernel.value(), "bias": bias.value()}
        grads = gradients(weights, x, y)
        kernel.assign_sub(rate * grads["kernel"])
        bias.assign_sub(rate * grads["bias"])
        return mean_loss(weights, x, y)

    for inputs in batches(strategy, size):
        strategy.run(train_step, args=(inputs,))


def local(weights: Any, x: Any, y: Any) -> Any:
    return jax.grad(mean_loss)(weights, x, y)


def averaged(weights: Any, x: Any, y: Any) -> Any:
    return reduce("MEAN", local(weights, x, y))


def summed(weights: Any, x: Any, y: Any) -> Any:
    return reduce("SUM", local(weights, x, y))


def bias_forgotten(weights: Any, x: Any, y: Any) -> Any:
    grads = local(weights, x, y)
    return {"kernel": reduce("MEAN", grads["kernel"]), "bias": grads["bias"]}


def summed_of_global_mean(weights: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        errors = (x @ weights["kernel"] + weights["bias"] - y) ** 2
        return dl.nn.compute_average_loss(errors.mean(axis=-1), global_batch_size=24)

    return reduce("SUM", jax.grad(loss)(weights))


def divided_before(weights: Any, x: Any, y: Any) -> Any:
    replicas = dl.get_replica_context().num_replicas_in_sync
    return reduce("SUM", jax.grad(lambda w: mean_loss(w, x, y) / replicas)(weights))


def divided_gradients(weights: Any, x: Any, y: Any) -> Any:
    """Divides each replica's mean gradient by the number of replicas, and adds them up."""
    number = dl.get_replica_context().num_replicas_in_sync
    grads = jax.grad(mean_loss)(weights, x, y)
    return reduce("SUM", jax.tree.map(lambda g: g / number, grads))


def weighed_by_counts(weights: Any, x: Any, y: Any) -> Any:
    """Weighs each replica's mean gradient by the number of its examples."""
    grads = jax.grad(mean_loss)(weights, x, y)
    sums, count = reduce("SUM", (jax.tree.map(lambda g: g * len(x), grads), jnp.float32(len(x))))
    return jax.tree.map(lambda g: g / count, sums)


def weighed_by_shares(weights: Any, x: Any, y: Any, examples: int = 24) -> Any:
    """Weighs each replica's mean gradient by its share of the global batch."""
    grads = jax.grad(mean_loss)(weights, x, y)
    return reduce("SUM", jax.tree.map(lambda g: g * (len(x) / examples), grads))


def divided_after(weights: Any, x: Any, y: Any) -> Any:
    replicas = dl.get_replica_context().num_replicas_in_sync
    return jax.tree.map(lambda g: g / replicas, summed(weights, x, y))


def summed_of_sums(weights: Any, x: Any, y: Any) -> Any:
    def loss(weights: Any) -> Any:
        return jnp.sum((x @ weights["kernel"] + weights["bias"] - y) ** 2)

    return jax.tree.map(lambda g: g / 1000, reduce("SUM", jax.grad(loss)(weights)))


def with_metrics(strategy: Any) -> None:
    """Metrics of each replica's own, which are added up when they are read."""
    with strategy.scope():
        total = dl.Variable(
            0.0, synchronization=ON_READ, aggregation=dl.VariableAggregation.SUM, name="total"
        )
        moving = dl.Variable(jnp.zeros(6), aggregation=dl.VariableAggregation.MEAN, name="moving")
        seen = dl.Variable(0, name="seen")

    def evaluate(inputs: Any) -> None:
        x, _ = inputs
        total.assign_add(x.sum())
        moving.assign(0.9 * moving.value() + 0.1 * x.mean(axis=0))
        seen.assign_add(jnp.int32(x[0, 0] > 0))

    for inputs in batches(strategy):
        strategy.run(evaluate, (inputs,))
    assert float(total.value()) != 0


def moving_mean_of_its_own(strategy: Any) -> None:
    with strategy.scope():
        moving = dl.Variable(jnp.zeros(6), name="moving_mean")

    def update(inputs: Any) -> Any:
        moving.assign(0.9 * moving.value() + 0.1 * inputs[0].mean(axis=0))
        return inputs[0] - moving.value()

    for inputs in batches(strategy):
        strategy.run(update, (inputs,))


def apart_then_averaged(strategy: Any, *, on_host: bool) -> None:
    """Local SGD: replicas train apart for two steps, then average their weights."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def train_step(inputs: Any) -> None:
        x, y = inputs
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        kernel.assign_sub(0.1 * grads)

    def average() -> None:
        kernel.assign(reduce("MEAN", kernel.value()))

    for number, inputs in enumerate(batches(strategy)):
        strategy.run(train_step, (inputs,))
        if number % 2 and on_host:
            kernel.assign(sum(np.asarray(v) for v in kernel.values) / len(kernel.values))
        elif number % 2:
            strategy.run(average)


def rate_of_each_replica(strategy: Any) -> None:
    """A learning rate that is passed as equal components."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")
    rates = strategy.experimental_distribute_values_from_function(lambda _: jnp.float32(0.1))

    def train_step(inputs: Any, rate: Any) -> None:
        x, y = inputs
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        kernel.assign_sub(rate * reduce("MEAN", grads))

    for inputs in batches(strategy):
        strategy.run(train_step, (inputs, rates))


# --- functional states ---------------------------------------------------------------------------


def functional(strategy: Any, combine: Callable[[Any], Any], tx: Any, size: int = 24) -> None:
    """A pytree of parameters and Optax's state, passed through the steps."""
    params = start()
    state = strategy.replicate((params, tx.init(params)))

    def train_step(state: Any, x: Any, y: Any) -> Any:
        params, opt_state = state
        loss, grads = jax.value_and_grad(mean_loss)(params, x, y)
        updates, opt_state = tx.update(combine(grads), opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    for x, y in batches(strategy, size):
        state, _ = strategy.run(train_step, (state, x, y))


def backbone_and_head() -> Any:
    keys = jax.random.split(jax.random.key(0))
    shapes = {"backbone": (6, 4), "head": (4, 2)}
    return {
        part: {"dense": {"kernel": 0.3 * jax.random.normal(key, shapes[part])}}
        for part, key in zip(shapes, keys, strict=True)
    }


def two_layers(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["backbone"]["dense"]["kernel"])
    return jnp.mean((hidden @ params["head"]["dense"]["kernel"] - y) ** 2)


def backbone_forgotten(strategy: Any) -> None:
    """Only the gradients of the head are combined."""
    params = backbone_and_head()
    state = strategy.replicate({"params": params, "opt": MOMENTUM.init(params)})

    def train_step(state: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(two_layers)(state["params"], x, y)
        grads["head"] = reduce("MEAN", grads["head"])
        updates, opt = MOMENTUM.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, loss

    for x, y in batches(strategy):
        state, _ = strategy.run(train_step, (state, x, y))


def memory_beside_the_model(strategy: Any) -> None:
    """A memory of each replica's own examples, in one part of the state with the model."""
    state = strategy.replicate(
        {"agent": {"params": {"model": start()}, "memory": {"hidden": jnp.zeros((2,))}}, "step": 0}
    )

    def train_step(state: Any, x: Any, y: Any) -> Any:
        agent = state["agent"]
        before = agent["memory"]["hidden"]

        def loss(params: Any) -> Any:
            return mean_loss(params["model"], x, y + 0.1 * before)

        grads = reduce("MEAN", jax.grad(loss)(agent["params"]))
        hidden = jnp.tanh(0.5 * before + y.mean(axis=0))
        agent = {"params": descend(agent["params"], grads), "memory": {"hidden": hidden}}
        return {"agent": agent, "step": state["step"] + 1}

    for x, y in batches(strategy):
        state = strategy.run(train_step, (state, x, y))


def errors_in_the_optimizer(strategy: Any) -> None:
    """Errors of compressed gradients beside the moments, in an optimizer's state."""
    params = start()
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = strategy.replicate({"params": params, "opt": ({"error": zeros}, {"trace": zeros})})

    def train_step(state: Any, x: Any, y: Any) -> Any:
        params, (compressed, moments) = state["params"], state["opt"]
        wanted = jax.tree.map(jnp.add, jax.grad(mean_loss)(params, x, y), compressed["error"])
        sent = jax.tree.map(lambda g: jnp.where(jnp.abs(g) > 0.01, g, 0.0), wanted)
        error = jax.tree.map(jnp.subtract, wanted, sent)
        trace = jax.tree.map(lambda t, g: 0.9 * t + g, moments["trace"], reduce("MEAN", sent))
        opt = ({"error": error}, {"trace": trace})
        return {"params": descend(params, trace), "opt": opt}

    for x, y in batches(strategy):
        state = strategy.run(train_step, (state, x, y))


def metrics_in_the_state(strategy: Any) -> None:
    """Each replica's sums in the state, which the host adds up."""
    state = strategy.replicate({"params": start(), "sums": {"loss": jnp.zeros((2,))}})

    def train_step(state: Any, batch: Any) -> Any:
        x, y = batch
        errors = (x @ state["params"]["kernel"] - y) ** 2
        grads = reduce("MEAN", jax.grad(mean_loss)(state["params"], x, y))
        sums = {"loss": state["sums"]["loss"] + errors.sum(axis=0)}
        return {"params": descend(state["params"], grads), "sums": sums}

    for batch in batches(strategy):
        state = strategy.run(train_step, (state, batch))
    strategy.reduce("SUM", state["sums"]["loss"], axis=None)


def error_feedback(strategy: Any) -> None:
    """Compressed gradients, whose errors each replica keeps for its next step."""
    state = strategy.replicate((start(), jax.tree.map(jnp.zeros_like, start())))

    def train_step(state: Any, batch: Any) -> Any:
        params, errors = state
        wanted = jax.tree.map(jnp.add, jax.grad(mean_loss)(params, *batch), errors)
        sent = jax.tree.map(lambda g: jnp.where(jnp.abs(g) > 0.01, g, 0.0), wanted)
        errors = jax.tree.map(jnp.subtract, wanted, sent)
        return descend(params, reduce("MEAN", sent)), errors

    for batch in batches(strategy):
        state = strategy.run(train_step, (state, batch))


def chains(strategy: Any) -> None:
    """A Markov chain on each replica, from one beginning, with the replica's own keys."""
    state = strategy.replicate((jnp.zeros((3,)), jnp.float32(0)))
    keys = strategy.experimental_distribute_values_from_function(
        lambda context: jax.random.key(context.replica_id_in_sync_group)
    )

    def move(state: Any, key: Any, number: Any) -> Any:
        at, log_p = state
        to = at + jax.random.normal(jax.random.fold_in(key, number), at.shape)
        new = -jnp.sum(to**2)
        accept = new > log_p
        return jnp.where(accept, to, at), jnp.where(accept, new, log_p)

    for number in range(STEPS):
        state = strategy.run(move, (state, keys, number))


def models_of_their_own(strategy: Any) -> None:
    """An ensemble: each replica begins with other weights, and shares nothing."""
    state = strategy.experimental_distribute_values_from_function(
        lambda context: jax.random.normal(jax.random.key(context.replica_id_in_sync_group), (6, 2))
    )

    def train_step(kernel: Any, batch: Any) -> Any:
        x, y = batch
        loss, grads = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel)
        return kernel - 0.1 * grads, loss

    for batch in batches(strategy):
        state, _ = strategy.run(train_step, (state, batch))


# --- random numbers ------------------------------------------------------------------------------


def dropout(strategy: Any, key_of: Callable[[Any], Any], *, passed: str = "whole") -> None:
    """Dropout on the input, by hand."""
    state = strategy.replicate(start())

    def train_step(params: Any, batch: Any, key: Any) -> Any:
        x, y = batch
        keep = jax.random.bernoulli(key_of(key), 0.8, x.shape)
        grads = jax.grad(mean_loss)(params, jnp.where(keep, x / 0.8, 0.0), y)
        return descend(params, reduce("MEAN", grads))

    key = jax.random.PRNGKey(0)
    for batch in batches(strategy):
        key, now = jax.random.split(key)
        each = {
            "whole": lambda: now,  # noqa: B023
            "replicated": lambda: strategy.replicate(now),  # noqa: B023
            "own": lambda: strategy.experimental_distribute_values_from_function(
                lambda context: own_of(now, context)  # noqa: B023
            ),
        }[passed]()
        state = strategy.run(train_step, (state, batch, each))


def own_of(key: Any, context: Any) -> Any:
    return jax.random.fold_in(key, context.replica_id_in_sync_group)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x: Any, *, train: bool) -> Any:
        x = nn.relu(nn.Dense(8)(x))
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=not train)(x))


def linen(strategy: Any, *, own: bool) -> None:
    """Flax's tutorial: a TrainState, and keys of dropout folded by the step."""
    net = Net()
    params = net.init(jax.random.key(0), X[:1], train=False)
    create: Any = TrainState.create
    made = create(apply_fn=net.apply, params=params, tx=optax.sgd(0.1))
    state = strategy.replicate(made)

    def train_step(state: Any, x: Any, y: Any, rng: Any) -> Any:
        rng = jax.random.fold_in(rng, state.step)
        rng = own_key(rng) if own else rng

        def loss_fn(params: Any) -> Any:
            out = state.apply_fn(params, x, train=True, rngs={"dropout": rng})
            return optax.squared_error(out, y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=reduce("MEAN", grads)), loss

    rng = jax.random.key(1)
    for x, y in batches(strategy):
        state, _ = strategy.run(train_step, (state, x, y, rng))


def shared_noise(strategy: Any, what: str) -> None:
    """Random numbers that must be the same on all replicas."""
    state = strategy.replicate(start())

    def train_step(params: Any, batch: Any, key: Any) -> Any:
        x, y = batch
        if what == "projection":
            x = x + 0 * (x @ jax.random.normal(key, (6, 16))).sum()
        weights = params
        if what == "weights":
            noise = jax.random.normal(key, params["kernel"].shape)
            weights = {**params, "kernel": params["kernel"] + 0.01 * noise}
        if what == "features":
            x = x * jax.random.bernoulli(key, 0.9, x.shape[1:])
        if what == "mixed":
            x = x[jax.random.permutation(key, x.shape[0])] * 0.1 + x * 0.9
        grads = jax.grad(mean_loss)(weights, x, y)
        if what == "mask of gradients":
            kept = jax.random.bernoulli(key, 0.5, grads["kernel"].shape)
            grads = {**grads, "kernel": jnp.where(kept, grads["kernel"], 0.0)}
        grads = reduce("MEAN", grads)
        if what == "langevin":
            noise = jax.random.normal(key, grads["kernel"].shape)
            grads = {**grads, "kernel": grads["kernel"] + 0.01 * noise}
        return descend(params, grads)

    for number, batch in enumerate(batches(strategy)):
        state = strategy.run(train_step, (state, batch, jax.random.key(number)))


def dropped_weights(strategy: Any, key: Any) -> None:
    """Drops the same weights on all replicas, of a kernel with as many rows as their batches."""
    params = strategy.run(lambda: dl.Mirrored(jnp.zeros((6, 2))))

    def train_step(kernel: Any, x: Any, y: Any, key: Any) -> Any:
        def loss(kernel: Any) -> Any:
            kept = jax.random.bernoulli(key, 0.9, kernel.shape)
            return jnp.sum((x @ (kernel * kept) - y) ** 2) / 24

        return dl.Mirrored(kernel - 0.1 * reduce("SUM", jax.grad(loss)(kernel)))

    for number, (x, y) in enumerate(batches(strategy)):
        params = strategy.run(train_step, (params, x, y, jax.random.fold_in(key, number)))


def noise_of_samples(strategy: Any) -> None:
    """A variational encoder: the same noise for the same place in each replica's batch."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 4)), name="kernel")

    def train_step(inputs: Any, seed: Any) -> Any:
        x, _ = inputs

        def loss(kernel: Any) -> Any:
            mean, spread = jnp.split(x @ kernel, 2, axis=-1)
            z = mean + jnp.exp(spread) * jax.random.normal(jax.random.key(seed), mean.shape)
            return jnp.mean((z - x[:, :2]) ** 2)

        value, grads = jax.value_and_grad(loss)(kernel.value())
        kernel.assign_sub(0.1 * reduce("MEAN", grads))
        return value

    for number, inputs in enumerate(batches(strategy)):
        strategy.run(train_step, (inputs, number))


def sampled(strategy: Any) -> None:
    """Samples without training: nothing is learnt from them."""

    def sample(x: Any, key: Any) -> Any:
        return x + jax.random.gumbel(key, x.shape)

    for number, (x, _) in enumerate(batches(strategy)):
        strategy.run(sample, (x, jax.random.key(number)))


# --- examples ------------------------------------------------------------------------------------


def whole_batches(strategy: Any, *, combine: bool) -> None:
    """Passes NumPy batches to run, which every replica receives whole."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def train_step(images: Any, targets: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((images @ w - targets) ** 2)

        value, grads = jax.value_and_grad(loss)(kernel.value())
        kernel.assign_sub(0.1 * (reduce("MEAN", grads) if combine else grads))
        return value

    for number in range(STEPS):
        rows = slice(24 * number, 24 * number + 24)
        strategy.run(train_step, args=(X[rows], Y[rows]))


def whole_batches_and_state(strategy: Any) -> None:
    """The parameters are passed in and out as well, so they are whole, too."""

    def train_step(params: Any, opt_state: Any, images: Any, targets: Any) -> Any:
        loss, grads = jax.value_and_grad(mean_loss)(params, images, targets)
        loss, grads = reduce("MEAN", (loss, grads))
        updates, opt_state = ADAM.update(grads, opt_state, params)
        return jax.tree.map(dl.Mirrored, (optax.apply_updates(params, updates), opt_state, loss))

    params = start()
    opt_state = ADAM.init(params)
    for number in range(STEPS):
        rows = slice(24 * number, 24 * number + 24)
        params, opt_state, _ = strategy.run(train_step, (params, opt_state, X[rows], Y[rows]))


def whole_but_sliced(strategy: Any) -> None:
    """Every replica receives the whole batch and takes its own part of it."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def train_step(x: Any, y: Any) -> None:
        number = dl.get_replica_context().replica_id_in_sync_group
        x, y = (jax.lax.dynamic_slice_in_dim(part, number * 12, 12) for part in (x, y))
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        kernel.assign_sub(0.1 * reduce("MEAN", grads))

    for number in range(STEPS):
        rows = slice(24 * number, 24 * number + 24)
        strategy.run(train_step, args=(X[rows], Y[rows]))


def moving_average_of_weights(strategy: Any) -> None:
    """A teacher that follows the student, by arrays that all replicas receive."""
    with strategy.scope():
        teacher = dl.Variable(jnp.zeros((6, 2)), name="teacher")

    def follow(student: Any, decay: Any) -> None:
        teacher.assign(decay * teacher.value() + (1 - decay) * student)

    for number in range(STEPS):
        strategy.run(follow, (np.full((6, 2), number, np.float32), 0.9))


def evaluated_whole(strategy: Any) -> None:
    with strategy.scope():
        kernel = dl.Variable(jnp.ones((6, 2)), name="kernel")

    def evaluate(x: Any, y: Any) -> Any:
        return jnp.mean((x @ kernel.value() - y) ** 2)

    for _number in range(STEPS):
        strategy.run(evaluate, (X, Y))


# --- Flax NNX, other strategies ------------------------------------------------------------------


def nnx_model(strategy: Any, op: str) -> None:
    model = nnx.Linear(6, 2, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
        x, y = batch
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        optimizer.update(model, reduce(op, grads))
        return loss

    for batch in batches(strategy):
        strategy.run(train_step, (model, optimizer, batch))


def merged(strategy: Any) -> None:
    """The optimizer of TensorFlow's libraries: a merge_call that updates each copy."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 2)), name="kernel")

    def apply(strategy: Any, grads: Any) -> None:
        grads = strategy.extended.reduce_to("MEAN", grads, kernel)
        strategy.extended.update(kernel, lambda v, g: v.assign_sub(0.1 * g), args=(grads,))

    def train_step(inputs: Any) -> None:
        x, y = inputs
        grads = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(kernel.value())
        dl.get_replica_context().merge_call(apply, args=(grads,))

    for inputs in batches(strategy):
        strategy.run(train_step, (inputs,))


def boxes(strategy: Any, outputs: int) -> None:
    """The sum of squares over some outputs, divided by the global batch size."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, outputs)), name="kernel")

    def train_step(inputs: Any) -> None:
        x, y = inputs

        def loss(kernel: Any) -> Any:
            return jnp.sum((x @ kernel - y[:, :1]) ** 2) / 24

        kernel.assign_sub(0.1 * reduce("SUM", jax.grad(loss)(kernel.value())))

    for inputs in batches(strategy):
        strategy.run(train_step, (inputs,))


SGD, MOMENTUM, ADAM = optax.sgd(0.1), optax.sgd(0.1, momentum=0.9), optax.adam(0.01)
MEAN, SUM, NOT = partial(reduce, "MEAN"), partial(reduce, "SUM"), (lambda grads: grads)
Made = Callable[[], None]

WRONG: dict[str, tuple[Made, str, str]] = {
    "never reduced": (
        lambda: with_variables(mirrored(), local), "drifting_copies", "variable kernel"
    ),
    "one forgotten": (
        lambda: with_variables(mirrored(3), bias_forgotten), "drifting_copies", "variable bias"
    ),
    "moving mean": (
        lambda: moving_mean_of_its_own(mirrored(4)), "drifting_copies", "variable moving_mean"
    ),
    "functional": (lambda: functional(mirrored(), NOT, SGD), "drifting_copies", "state[0]["),
    "sum of means": (
        lambda: with_variables(mirrored(4), summed), "sum_of_means", "function train_step"
    ),
    "sum of means, NNX": (
        lambda: nnx_model(mirrored(), "SUM"), "sum_of_means", "function train_step"
    ),
    "mean of unequal means": (
        lambda: with_variables(mirrored(), averaged, size=3),
        "mean_of_unequal_means",
        "function train_step",
    ),
    "backbone forgotten": (
        lambda: backbone_forgotten(mirrored(3)), "drifting_copies", "state['params']['backbone']"
    ),
    "one mask": (
        lambda: dropout(mirrored(4), lambda key: key),
        "same_random_numbers",
        "function train_step",
    ),
    "one mask, replicated key": (
        lambda: dropout(mirrored(), lambda key: key, passed="replicated"),
        "same_random_numbers",
        "function train_step",
    ),
    "one mask, seed inside": (
        lambda: dropout(mirrored(), lambda _: jax.random.key(3)),
        "same_random_numbers",
        "function train_step",
    ),
    "one mask, Linen": (
        lambda: linen(mirrored(), own=False), "same_random_numbers", "function train_step"
    ),
    "one noise": (
        lambda: noise_of_samples(mirrored(8)), "same_random_numbers", "function train_step"
    ),
    "whole batches": (
        lambda: whole_batches(mirrored(4), combine=True), "same_examples", "argument images"
    ),
    "whole batches, nothing combined": (
        lambda: whole_batches(mirrored(), combine=False), "same_examples", "argument images"
    ),
    "whole batches and state": (
        lambda: whole_batches_and_state(mirrored(4)), "same_examples", "argument images, targets"
    ),
}  # fmt: skip

RIGHT: dict[str, Made] = {
    "averaged": lambda: with_variables(mirrored(), averaged),
    "local, one replica": lambda: with_variables(mirrored(1), local),
    "averaged, last batch smaller": lambda: with_variables(mirrored(), averaged, size=25),
    "sum of a global mean": lambda: with_variables(mirrored(4), summed_of_global_mean),
    "divided before": lambda: with_variables(mirrored(4), divided_before),
    "gradients divided": lambda: with_variables(mirrored(4), divided_gradients),
    "weighed by counts": lambda: with_variables(mirrored(4), weighed_by_counts),
    "weighed by shares": lambda: with_variables(mirrored(4), weighed_by_shares),
    "dropped weights": lambda: dropped_weights(mirrored(4), jax.random.key(3)),
    "divided after": lambda: with_variables(mirrored(3), divided_after),
    "sum of sums": lambda: with_variables(mirrored(4), summed_of_sums),
    "metrics": lambda: with_metrics(mirrored(4)),
    "averaged now and then": lambda: apart_then_averaged(mirrored(), on_host=False),
    "averaged on the host": lambda: apart_then_averaged(mirrored(), on_host=True),
    "rates of replicas": lambda: rate_of_each_replica(mirrored()),
    "merge_call": lambda: merged(mirrored()),
    "functional": lambda: functional(mirrored(4), MEAN, MOMENTUM),
    "metrics in the state": lambda: metrics_in_the_state(mirrored()),
    "error feedback": lambda: error_feedback(mirrored()),
    "memory beside the model": lambda: memory_beside_the_model(mirrored()),
    "errors in the optimizer": lambda: errors_in_the_optimizer(mirrored()),
    "chains": lambda: chains(mirrored(4)),
    "ensemble": lambda: models_of_their_own(mirrored()),
    "own keys": lambda: dropout(mirrored(4), own_key),
    "own keys, passed": lambda: dropout(mirrored(), lambda key: key, passed="own"),
    "shared projection": lambda: shared_noise(mirrored(), "projection"),
    "mask of gradients": lambda: shared_noise(mirrored(4), "mask of gradients"),
    "samples": lambda: sampled(mirrored()),
    "own part of whole batches": lambda: whole_but_sliced(mirrored()),
    "moving average": lambda: moving_average_of_weights(mirrored(4)),
    "evaluated whole": lambda: evaluated_whole(mirrored()),
    "NNX": lambda: nnx_model(mirrored(), "MEAN"),
}


# --- datasets ------------------------------------------------------------------------------------


def classifier(strategy: Any, distributed: Any, *, trains: bool = True) -> None:
    """Logistic regression on batches of `(x, label)`."""
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 4)), name="kernel")

    def train_step(inputs: Any) -> None:
        x, label = inputs

        def loss(kernel: Any) -> Any:
            return optax.softmax_cross_entropy_with_integer_labels(x @ kernel, label).mean()

        kernel.assign_sub(0.1 * reduce("MEAN", jax.grad(loss)(kernel.value())))

    def evaluate(inputs: Any) -> Any:
        x, label = inputs
        return (jnp.argmax(x @ kernel.value(), axis=-1) == label).sum()

    for inputs in distributed:
        strategy.run(train_step if trains else evaluate, (inputs,))


def counted(*, once: bool) -> None:
    """An evaluation that counts right answers in a variable of each replica, or of all."""
    strategy = mirrored()
    on_read, auto = dl.VariableSynchronization.ON_READ, dl.VariableSynchronization.AUTO
    with strategy.scope():
        kernel = dl.Variable(jnp.zeros((6, 4)), name="kernel")
        right = dl.Variable(
            0.0,
            trainable=False,
            synchronization=auto if once else on_read,
            aggregation=dl.VariableAggregation.SUM,
        )

    def evaluate(inputs: Any) -> None:
        x, label = inputs
        right.assign_add((jnp.argmax(x @ kernel.value(), axis=-1) == label).sum() * 1.0)

    dataset = labelled(SORTED).batch(8)
    for inputs in strategy.experimental_distribute_dataset(dataset):
        strategy.run(evaluate, (inputs,))


def labelled(labels: np.ndarray, *, shuffle: bool = False) -> dl.data.Dataset:
    x = np.random.default_rng(3).normal(size=(len(labels), 6)).astype(np.float32)
    dataset = dl.data.Dataset.from_tensor_slices((x, labels))
    return dataset.shuffle(len(labels), seed=0) if shuffle else dataset


def of_a_generator(labels: np.ndarray) -> dl.data.Dataset:
    def rows() -> Iterator[Any]:
        for number, label in enumerate(labels):
            yield np.full(6, number, np.float32), label

    signature = (
        dl.data.TensorSpec((6,), np.dtype("float32")),
        dl.data.TensorSpec((), np.dtype("int32")),
    )
    return dl.data.Dataset.from_generator(rows, output_signature=signature)


def by_label(dataset: dl.data.Dataset, *, trains: bool = True, size: int = 8) -> None:
    strategy = mirrored()
    distributed = strategy.experimental_distribute_dataset(dataset.batch(size))
    classifier(strategy, distributed, trains=trains)


def for_each_replica(make: Callable[[Any], dl.data.Dataset]) -> None:
    strategy = mirrored(4)
    per_replica = dl.InputOptions(
        experimental_replication_mode=dl.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    distributed = strategy.distribute_datasets_from_function(make, per_replica)
    classifier(strategy, distributed)


SORTED = np.repeat(np.arange(4, dtype=np.int32), 24)
RARE = (np.arange(96) % 32 == 5).astype(np.int32)

WRONG |= {
    "sorted": (lambda: by_label(labelled(SORTED)), "sorted_examples", "dataset at wrong_"),
    "sorted, of a generator": (
        lambda: by_label(of_a_generator(SORTED)), "sorted_examples", "dataset at wrong_"
    ),
    "mean of single examples": (
        lambda: by_label(labelled(RARE, shuffle=True), size=3),
        "mean_of_unequal_means",
        "function train_step",
    ),
    "one pipeline for each replica": (
        lambda: for_each_replica(lambda _: labelled(RARE, shuffle=True).batch(8)),
        "same_examples",
        "dataset at wrong_",
    ),
}  # fmt: skip

RIGHT |= {
    "as many outputs as replicas": lambda: boxes(mirrored(4), 4),
    "shuffled": lambda: by_label(labelled(SORTED, shuffle=True)),
    "sorted, evaluated": lambda: by_label(labelled(SORTED), trains=False),
    "sorted, counted by each replica": lambda: counted(once=False),
    "sorted, counted once": lambda: counted(once=True),
    "labels in turn": lambda: by_label(labelled(SORTED.reshape(4, -1).T.ravel())),
    "rare label": lambda: by_label(labelled(RARE)),
    "batches of one label in turn": lambda: by_label(
        labelled(np.repeat(np.arange(96, dtype=np.int32) // 8 % 3, 1))
    ),
    "a part for each replica": lambda: for_each_replica(
        lambda context: (
            labelled(RARE).shard(context.num_input_pipelines, context.input_pipeline_id).batch(8)
        )
    ),
    "one batch for each replica": lambda: for_each_replica(
        lambda _: dl.data.Dataset.from_tensors((X[:8], RARE[:8])).repeat(8)
    ),
}


# --- tables --------------------------------------------------------------------------------------


def looked_up(strategy: Any, rows: int, *, whole: bool) -> None:
    with strategy.scope():
        table = dl.Variable(jnp.zeros((rows, 16)), name="table")

    def train_step(ids: Any) -> None:
        if whole:
            grads = reduce("MEAN", jax.grad(lambda t: (t[ids] ** 2).mean())(table.value()))
            table.assign_sub(0.1 * grads)
            return
        found = table.value()[ids]
        grads = jax.grad(lambda t: (t**2).mean())(found)
        grads, used = dl.get_replica_context().all_gather((grads, ids), axis=0)
        table.assign(table.value().at[used].add(-0.1 * grads))

    dataset = dl.data.Dataset.range(64).map(lambda n: n % 20).batch(8)
    for ids in strategy.experimental_distribute_dataset(dataset):
        strategy.run(train_step, (ids,))
