"""
A service
=========

Scores of new nodes over HTTP, with FastAPI (``pip install fastapi uvicorn``, which calirare does not need). It is shown
here, not run; start it with ``CALIRARE_RUN=runs/big CALIRARE_GRAPH=big/ uvicorn service:app``.
"""

import math
import os

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import calirare

scorer = calirare.Scorer.open(os.environ["CALIRARE_RUN"], os.environ["CALIRARE_GRAPH"])
app = FastAPI()


class Node(BaseModel):
    """A new node: raw features, null where one is missing, and the known nodes that it has edges to."""

    x: list[float | None]
    neighbours: list[int | str] = []
    weights: list[float] | None = None


# %%
# What the run says of a node; nothing is kept. Whatever does not fit is told in one sentence.


@app.post("/score")
def score(node: Node) -> dict[str, float | bool]:
    try:
        said = scorer.score(features(node), node.neighbours, weights=node.weights)
    except calirare.InputError as error:
        raise HTTPException(422, str(error)) from error
    return {"p_rare": float(said.rare), "p_balanced": float(said.balanced), "alert": bool(said.alert)}


def features(node: Node) -> list[float]:
    return [math.nan if value is None else value for value in node.x]
