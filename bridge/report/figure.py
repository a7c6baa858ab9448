"""The curves of a report as a PNG, drawn by matplotlib."""

from __future__ import annotations

from pathlib import Path

from bridge.report.report import Report


def write_figure(report: Report, path: str | Path) -> None:
    """Draw the loss of every target, a panel for each model that has curves. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    trained = [model for model in report.models if model.training.losses]
    figure = Figure(figsize=(5.5 * max(len(trained), 1), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, max(len(trained), 1), squeeze=False)[0]
    for model, axes in zip(trained, panels):
        for position, (target, curve) in enumerate(model.training.losses.items()):
            style = {"linewidth": 3, "alpha": 0.45} if position == 0 else {"linewidth": 1.2, "linestyle": "--"}
            axes.plot(range(1, len(curve) + 1), curve, label=target or "loss", **style)
        axes.set_title(model.name)
        axes.set_xlabel("training step")
        axes.set_ylabel("loss")
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=140)
