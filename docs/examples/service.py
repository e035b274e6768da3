"""
A service
=========

New nodes over HTTP, with FastAPI (``pip install fastapi uvicorn``, which calirare does not need). It is shown here, not
run; start it with ``CALIRARE_RUN=runs/big CALIRARE_GRAPH=big/ uvicorn service:app``.
"""

import math
import os

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import calirare
from calirare.graph import GraphLog

log = GraphLog(os.environ["CALIRARE_GRAPH"])  # one process holds it; for several workers leave it and /nodes out
scorer = calirare.Scorer.open(os.environ["CALIRARE_RUN"], log)  # nodes are called as the log calls them
app = FastAPI()


class Node(BaseModel):
    """A new node: raw features, null where one is missing, and the known nodes that it has edges to."""

    x: list[float | None]
    neighbours: list[int | str] = []
    weights: list[float] | None = None
    name: str | None = None


# %%
# What the run says of a node; nothing is kept. Whatever does not fit is told in one sentence.


@app.post("/score")
def score(node: Node) -> dict[str, float | bool]:
    try:
        said = scorer.score(features(node), node.neighbours, weights=node.weights)
    except calirare.InputError as error:
        raise HTTPException(422, str(error)) from error
    return {"p_rare": float(said.rare), "p_balanced": float(said.balanced), "alert": bool(said.alert)}


# %%
# A node that stays: on the disk when the answer is sent. Scores know it after the next start, or after
# ``calirare compact`` and a start on the new folder.


@app.post("/nodes", status_code=201)
def add(node: Node) -> dict[str, int | str]:
    try:
        return {"node": log.add_node(features(node), node.neighbours, weights=node.weights, name=node.name)}
    except calirare.InputError as error:
        raise HTTPException(422, str(error)) from error


def features(node: Node) -> list[float]:
    return [math.nan if value is None else value for value in node.x]
