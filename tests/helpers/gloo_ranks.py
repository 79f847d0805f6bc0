"""Ranks of a gloo group, in processes of their own: sharded graphs, and training together."""

import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch_geometric.nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.modules.module import register_module_forward_hook
from torch_geometric.data import Data

import bitgnn
from bitgnn import BitTensor
from bitgnn.data import NeighborLoader
from bitgnn.distributed import parallelize, shard_graph
from bitgnn.distributed.training_rows import TrainingRows
from bitgnn.nn.inputs.input_bits import InputBits

TIMEOUT = timedelta(seconds=60)


@contextmanager
def group(rank, world_size, store, timeout=TIMEOUT):
    """The mesh of all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size, timeout=timeout
    )
    try:
        yield init_device_mesh("cpu", (world_size,))
    finally:
        dist.destroy_process_group()


def aggregate(rank, world_size, store, cases, folder):
    """Write each case's sums and nodes of this rank to a file in a folder."""
    with group(rank, world_size, store) as mesh:
        found = {}
        for name, (source, x, options) in cases.items():
            sharded = shard_graph(source, mesh, **options)
            nodes = sharded.own_nodes()
            bits = sharded.x if x is None else BitTensor.from_float(x[nodes])
            found[f"{name}.sums"] = sharded.aggregate(bits)
            found[f"{name}.nodes"] = nodes
        torch.save(found, f"{folder}/rank-{rank}.pt")


def run_models(rank, world_size, store, cases, folder):
    """Write each case's own and full results of this rank to a file in a folder.

    A case is the folder of a frozen model, features of all nodes, a graph, and its options.
    """
    with group(rank, world_size, store) as mesh:
        found = {}
        for name, (model, x, source, options) in cases.items():
            sharded = shard_graph(source, mesh, **options)
            parallel = parallelize(bitgnn.load(model), mesh)
            nodes = sharded.own_nodes()
            own = sharded.x if x is None else x[nodes]
            for time in range(2):
                result = parallel(own, sharded)
                found[f"{name}.{time}"] = sharded.full_tensor(result)
            found[f"{name}.nodes"], found[f"{name}.own"] = nodes, result
        torch.save(found, f"{folder}/rank-{rank}.pt")


def lose_one(rank, world_size, store, model, x, edges, folder):
    """Rank 1 ends after one forward; the others write the error of their next one to a file."""
    with group(rank, world_size, store, timedelta(seconds=20)) as mesh:
        sharded = shard_graph(edges, mesh, num_nodes=len(x), chunk_rows=4)
        parallel = parallelize(bitgnn.load(model), mesh)
        own = x[sharded.own_nodes()]
        parallel(own, sharded)
        if rank == 1:
            os._exit(0)
        try:
            parallel(own, sharded)
        except ConnectionError as error:
            with open(f"{folder}/error-{rank}", "w") as file:
                file.write(str(error))
        os._exit(0)  # the group cannot be left together any more


def toy_graph(num_nodes=90, classes=3, features=12):
    """A graph whose nodes of a class are neighbours, with features that tell a little of it."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(num_nodes) % classes
    mean = torch.randn(classes, features, generator=generator)
    x = mean[y] + 2 * torch.randn(num_nodes, features, generator=generator)
    ends = torch.randint(0, num_nodes // classes, (2, 4 * num_nodes), generator=generator)
    edges = ends * classes + y[torch.arange(4 * num_nodes) % num_nodes]
    train = torch.arange(num_nodes) < num_nodes // 2
    return Data(x=x, y=y, edge_index=edges, train_mask=train, val_mask=~train)


def distill_together(world_size, log, stop_after=None, seeds=None, is_split=False):
    """Distill a model of the toy graph; results by name, and the seeds of all batches drawn.

    ``stop_after`` is the number of batches of this rank after which Ctrl-C is pressed. The first of
    two ranks has a graph of bits where it ``is_split``, the second one a graph of floats.
    """
    seen, kinds = [], []

    def noted(module, args, out):
        if isinstance(module, InputBits) and module.training:
            kinds.append(module.kind)

    def looked_at(batch):
        if len(seen) == stop_after:
            raise KeyboardInterrupt
        seen.append(batch.input_id)
        return batch

    data = toy_graph()
    if is_split:
        data.x[::2] = (data.x[::2] > 1).float()
        is_within = data.edge_index[0] % 2 == data.edge_index[1] % 2
        data.edge_index = data.edge_index[:, is_within]
    loader = NeighborLoader(
        data, [5, 5], seeds, batch_size=16 // world_size, shuffle=not is_split, transform=looked_at
    )
    torch.manual_seed(1)
    model = torch_geometric.nn.GCN(12, 32, 2, 3, dropout=0.2)
    model.unused = torch.nn.Parameter(torch.ones(2))
    hook = register_module_forward_hook(noted)
    try:
        result = bitgnn.distill(model, data, loader=loader, epochs=4, log=log, trained=False)
    except KeyboardInterrupt:
        return {"seen": seen}
    except ValueError as error:
        return {"error": str(error)}
    finally:
        hook.remove()
    models = {"student": result.model, "teacher": result.teacher}
    return {
        **{name: dict(model.state_dict()) for name, model in models.items()},
        "history": result.history, "score": result.scores.val, "seen": seen, "kinds": kinds,
    }  # fmt: skip


def train(rank, world_size, store, folder, jobs):
    """Distill once a job, by name its log and options; write the results of this rank to a file."""
    with group(rank, world_size, store):
        found = {}
        for name, (log, options) in jobs.items():
            found[name] = distill_together(world_size, f"{folder}/{log}", **options)
        torch.save(found, f"{folder}/rank-{rank}.pt")


def step_sharded(rank, world_size, store, folder):
    """Train each case's model for a step; write outputs, gradients and state to a file.

    A case in the file ``cases.pt`` there is a model, features and classes of all nodes, a graph,
    its options and the dtype of messages. Ranks start with weights of their own, of which the first
    one's count.
    """
    with group(rank, world_size, store) as mesh:
        found = {}
        cases = torch.load(f"{folder}/cases.pt", weights_only=False)
        for name, (model, x, y, source, options, messages) in cases.items():
            sharded = shard_graph(source, mesh, **options)
            with torch.no_grad():
                for parameter in model.parameters() if rank else ():
                    parameter.add_(1.0)
            parallel = parallelize(model, mesh, messages=messages)
            nodes = sharded.own_nodes()
            found[name] = step(
                parallel, parallel.module, x[nodes], y[nodes], sharded, sharded.total,
                sharded.full_tensor,
            )  # fmt: skip
            sample = TrainingRows(sharded, messages).sample(x[nodes], 7)
            found[name]["sample"], found[name]["rows"] = sample, len(nodes)
        torch.save(found, f"{folder}/rank-{rank}.pt")


def step(call, model, x, y, graph, total, full):
    """Results of a step by gradient descent: outputs, gradients, state, and an evaluation."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    call.train()
    out = call(x, graph)
    known = y >= 0
    loss = torch.nn.functional.cross_entropy(out[known], y[known], reduction="sum")
    loss = total(loss) / total(known.sum())
    loss.backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    optimizer.step()
    call.eval()
    with torch.no_grad():
        evaluated = full(call(x, graph))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {
        "out": full(out.detach()), "loss": loss.detach(), "grads": grads, "state": state,
        "evaluated": evaluated,
    }  # fmt: skip


def lose_one_in_training(rank, world_size, store, folder):
    """Rank 1 ends before its backward pass; the others write the error of theirs to a file."""
    with group(rank, world_size, store, timedelta(seconds=20)) as mesh:
        model, x, graph = torch.load(f"{folder}/model.pt", weights_only=False)
        sharded, parallel = shard_graph(graph, mesh, num_nodes=len(x)), parallelize(model, mesh)
        loss = parallel.train()(x[sharded.own_nodes()], sharded).sum()
        if rank == 1:
            os._exit(0)
        try:
            loss.backward()
        except ConnectionError as error:
            with open(f"{folder}/error-{rank}", "w") as file:
                file.write(str(error))
        os._exit(0)  # the group cannot be left together any more


def go_on_sharded(rank, world_size, store, folder, reads):
    """Train a model for two steps, from a checkpoint if it ``reads``; write one and the state."""
    with group(rank, world_size, store) as mesh:
        model, x, graph = torch.load(f"{folder}/model.pt", weights_only=False)
        sharded = shard_graph(graph, mesh, num_nodes=len(x))
        parallel = parallelize(model.train(), mesh, messages=torch.float32)
        own = x[sharded.own_nodes()]
        if reads:  # roles settle and the optimizer gets its state before it is overwritten
            parallel(own, sharded).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        state = get_state_dict(model, optimizer)
        if reads:
            dcp.load({"model": state[0], "optimizer": state[1]}, checkpoint_id=f"{folder}/saved")
            set_state_dict(model, optimizer, model_state_dict=state[0], optim_state_dict=state[1])
        for _ in range(2):
            optimizer.zero_grad()
            sharded.total(parallel(own, sharded).square().sum()).backward()
            optimizer.step()
        if not reads:
            model_state, optimizer_state = get_state_dict(model, optimizer)
            saved = {"model": model_state, "optimizer": optimizer_state}
            dcp.save(saved, checkpoint_id=f"{folder}/saved")
        torch.save(dict(model.state_dict()), f"{folder}/state-{reads}-{world_size}-{rank}.pt")
