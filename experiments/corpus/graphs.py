"""Graphs, molecules and clouds of points."""

# The packages are those of the extra "corpus".
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.corpus.registry import Made, register
from experiments.corpus.steps import class_scores, distance, last_scores, links

NODES = 40


def edges(nodes: int = NODES, count: int = 160) -> torch.Tensor:
    """Random edges; a pair may occur twice, and a node may have none."""
    return torch.randint(0, nodes, (2, count))


def node_classifier(name: str, **configuration: Any) -> Made:
    """A net of torch_geometric with two layers and seven classes, by the name of its class."""
    from torch_geometric import nn as layers

    module = getattr(layers, name)(16, 32, 2, 7, **configuration)
    return module, (torch.randn(NODES, 16), edges()), {}, last_scores


for _name, _class, _configuration in [
    ("gcn", "GCN", {"dropout": 0.5}),
    ("gat", "GAT", {"dropout": 0.5, "heads": 4, "v2": False}),
    ("graphsage", "GraphSAGE", {"dropout": 0.5}),
    (
        "pna",
        "PNA",
        {
            "aggregators": ["mean", "min", "max", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
            "deg": torch.tensor([1, 3, 8, 12, 9, 5, 2]),
        },
    ),
]:
    register(f"pyg_{_name}", "torch_geometric", "gnn")(
        lambda name=_class, more=_configuration: node_classifier(name, **more)
    )


@register("pyg_gps_graphtransformer", "torch_geometric", "graph transformer")
def gps() -> Made:
    from torch_geometric.nn import GINConv, GPSConv

    local = GINConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)))
    module = GPSConv(16, local, heads=4, dropout=0.1)
    inputs = (torch.randn(NODES, 16), edges())
    return module, inputs, {"batch": torch.zeros(NODES, dtype=torch.long)}, distance


@register("pyg_schnet", "torch_geometric", "science")
def schnet() -> Made:
    from torch_geometric.nn import SchNet

    def complete(positions: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """All pairs; the package's own graph by radius would need torch-cluster."""
        atoms = torch.arange(len(positions), device=positions.device)
        pairs = torch.stack([atoms.repeat_interleave(len(positions)), atoms.repeat(len(positions))])
        pairs = pairs[:, pairs[0] != pairs[1]]
        return pairs, (positions[pairs[0]] - positions[pairs[1]]).norm(dim=-1)

    module = SchNet(32, 32, 2, 16, interaction_graph=complete)
    molecules = (torch.randint(1, 9, (12,)), torch.randn(12, 3))
    return module, molecules, {"batch": torch.arange(12) // 6}, distance


@register("pyg_point_transformer_conv", "torch_geometric", "pointcloud")
def point_transformer() -> Made:
    from torch_geometric.nn import PointTransformerConv

    return PointTransformerConv(16, 16), (torch.randn(NODES, 16), torch.randn(NODES, 3), edges()), {}, distance


@register("pyg_lightgcn_recsys", "torch_geometric", "recsys")
def lightgcn() -> Made:
    from torch_geometric.nn import LightGCN

    return LightGCN(60, 16, 2), (edges(60, 200),), {}, links


@register("pyg_graphunet", "torch_geometric", "gnn")
def graphunet() -> Made:
    from torch_geometric.nn import GraphUNet

    module = GraphUNet(16, 32, 7, depth=2, pool_ratios=0.5)
    return module, (torch.randn(NODES, 16), edges()), {}, last_scores


@register("egnn", "egnn_pytorch", "science")
def egnn() -> Made:
    from egnn_pytorch import EGNN_Network

    def loss(output: Any) -> torch.Tensor:
        features, positions = output
        return distance(features) + positions.pow(2).mean()

    module = EGNN_Network(num_tokens=21, num_positions=16, dim=16, depth=2, num_nearest_neighbors=4)
    molecules = (torch.randint(0, 21, (2, 16)), torch.randn(2, 16, 3))
    return module, molecules, {"mask": torch.ones(2, 16, dtype=torch.bool)}, loss


@register("pointnet_cls", "pointnet", "pointcloud")
def pointnet() -> Made:
    from pointnet import PointNetCls

    return PointNetCls(3, 10), (torch.randn(4, 3, 64),), {}, class_scores
