"""Planted bugs for the CUDA kernels, and the sources that hold them.

Each bug replaces a piece of one kernel source. All bugs of an operator are compiled into one copy of its source, each
behind a switch, so one executable tests them all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    Attributes:
        op: the operator, the stem of csrc/cuda/<op>.cuh.
        name: what is wrong.
        text: a piece of the source that occurs once, white space aside; the part between « and » is replaced.
        wrong: what replaces it; a statement replaces a statement, an expression an expression.
    """

    op: str
    name: str
    text: str
    wrong: str


MUTANTS = [
    Mutant(
        "propagate",
        "last column lost",
        "return «column + tile * Layout::kStep < end»;",
        "column + 1 + tile * Layout::kStep < end",
    ),
    Mutant("propagate", "weight of another entry", "a.values + «chunk + entry»", "chunk + seat.loader"),
    Mutant(
        "propagate",
        "row stride of x forgotten",
        "chunk + entry); const T* row = x.data + «int64_t(nodes[j]) * x.stride»",
        "int64_t(nodes[j]) * x.n_cols",
    ),
    Mutant("propagate", "second pack of a lane from the first", "seat.lane), «row + t * Layout::kStep»", "row"),
    Mutant("propagate", "entries read past the end", "«e < end» ? a.indices[e]", "true"),
    Mutant("propagate", "copies not waited for", "«wait_for_copies();» __syncthreads();", ";"),
    Mutant("propagate", "chunk read before others' copies are there", "wait_for_copies(); «__syncthreads();»", ";"),
    Mutant("propagate", "chunk overwritten while read", ": end); «__syncthreads();» chunk +=", ";"),
    Mutant(
        "propagate",
        "next chunk's nodes are this one's",
        "nodes_of<T, Layout>(a, «chunk + Layout::kEntries», end,",
        "chunk",
    ),
    Mutant(
        "propagate",
        "slots not all merged",
        "offset < «Layout::kAcross * Layout::kSplit»",
        "Layout::kAcross * Layout::kSplit / 2",
    ),
    Mutant("propagate", "a row that goes on begins anew", "if («row_begin >= chunk») mine = {};", "true"),
    Mutant("propagate", "turns begin with the chunk", "& («Layout::kSplit - 1»)", "0"),
    Mutant("propagate", "last entry dropped", "e < «int(to - chunk)»; e += Layout::kSplit", "int(to - chunk) - 1"),
    Mutant("propagate", "row runs into the next", "to = «row_end < stop ? row_end : stop»", "stop"),
    Mutant("propagate", "empty rows not written", "(row_end > chunk || «chunk == begin»)", "false"),
    Mutant("propagate", "rows after the first of each group lost", "«at += Layout::kGroups;» }", "break;"),
    Mutant("propagate", "long row runs into the next", "(a, x, begin, «end», seat);", "end + 1"),
    Mutant(
        "propagate",
        "row stride of x forgotten in a long row",
        "seat.loader]; const T* row = x.data + «int64_t(nodes[j]) * x.stride»",
        "int64_t(nodes[j]) * x.n_cols",
    ),
    Mutant("propagate", "second pack of a long row from the first", "Size>(«row + t * Layout::kStep»)", "row"),
    Mutant(
        "propagate",
        "weight of another entry of a long row",
        "a.values[«first + j * Layout::kLoaders + seat.loader»]",
        "first + j * Layout::kLoaders",
    ),
    Mutant("propagate", "entries of a long row twice", "(a, «first + kBatch * Layout::kLoaders», end,", "first"),
    Mutant("propagate", "entries of a long row lost", "first += «kBatch * Layout::kLoaders»", "8 * Layout::kLoaders"),
    Mutant(
        "propagate",
        "long row read before it is written",
        "= mine.weights; } «__syncthreads();» if (seat.loader < left / 2)",
        ";",
    ),
    Mutant("propagate", "long row overwritten while read", "left / 2]); } } «__syncthreads();»", ";"),
    Mutant("propagate", "half of a long row lost", "«left / 2 * Layout::kAcross»", "left / 4 * Layout::kAcross"),
    Mutant("propagate", "rows after a long one lost", "«row = next;»", "row = n;"),
    Mutant("propagate", "rows beyond the grid lost", "row += «int64_t(gridDim.x) * rows»", "int64_t(1) << 40"),
    Mutant(
        "propagate",
        "tiles beyond the grid lost",
        "begin += «int64_t(gridDim.y) * Layout::kColumns»",
        "int64_t(1) << 40",
    ),
    Mutant("neighbour_means", "weights not merged", "«__shfl_xor_sync(kFullMask, weights.sum, offset)»", "0.0"),
    Mutant(
        "neighbour_means",
        "weights of the lane itself",
        "«__shfl_xor_sync(kFullMask, weights.sum, offset)»",
        "weights.sum",
    ),
    Mutant(
        "neighbour_means",
        "sums, not means",
        "«launch_rows<MeanSum>(a, x, out, stream, limits);»",
        "launch_propagate(a, x, out, stream, limits);",
    ),
    Mutant("node_gradients", "bias without its entries", "* inputs.stride + a] : «T(1)»;", "T(0)"),
    Mutant("node_gradients", "last entry dropped", "for (int64_t e = begin; «e < end»; ++e)", "e + 1 < end"),
    Mutant("node_gradients", "last pack lost", "«k < n_packs»;", "k < n_packs - 1"),
    Mutant("node_gradients", "row stride of out forgotten", "«i * out.stride» + k * kSize", "i * out.n_cols"),
    Mutant("node_gradients", "entry of another node", "f.delta + «e * f.h» + b", "(e - begin) * f.h"),
    Mutant("node_gradients", "zero fill missing", "«row[c] = T(0);»", ";"),
    Mutant("node_gradients", "no barrier after the zero fill", "row[c] = T(0); «__syncthreads();»", ";"),
    Mutant("node_gradients", "no barrier between entries", "row + n_weights + b); «__syncthreads();»", ";"),
    Mutant("node_gradients", "non-zeros of a row lost", "«k += blockDim.y»", "k += inputs.indptr[node + 1]"),
    Mutant("block_cg", "sign of alpha", "cg_along(r[i], «-alpha», ap[i])", "alpha"),
    Mutant("block_cg", "old direction dropped", "cg_along(z[i], «beta», p[i])", "0.0"),
    Mutant("block_cg", "sums read before they are written", "= value; «__syncthreads();»", ";"),
    Mutant("block_cg", "sums overwritten while read", "«__syncthreads();» // the sums of the call before", ";"),
    Mutant(
        "block_cg", "warps that are not there summed", "«lane < n_warps ? warp_sums[lane] : 0.0»", "warp_sums[lane]"
    ),
    Mutant(
        "block_cg",
        "half of each warp left out of the sum",
        "n_warps = int(blockDim.x / kWarp); for (int offset = «kWarp / 2»;",
        "kWarp / 4",
    ),
    Mutant(
        "block_cg",
        "finished columns move on",
        "«if (column.status != kCgRunning) continue;» const int64_t start = j * columns.p; const double alpha",
        ";",
    ),
    Mutant(
        "block_cg",
        "step in spite of breakdown",
        "if («column.status == kCgRunning») { double r_dot_r",
        "true",
    ),
    Mutant(
        "block_cg",
        "state not kept",
        "«if (threadIdx.x == 0) columns.state[j] = column;» // every thread",
        ";",
    ),
    Mutant(
        "block_cg",
        "last number lost",
        "i < «start + columns.p»; i += blockDim.x) { const T residual",
        "start + columns.p - 1",
    ),
    Mutant(
        "jackknife_interval",
        "rank off by one",
        "if («__reduce_add_sync(kFullMask, below) <= rank»)",
        "__reduce_add_sync(kFullMask, below) < rank",
    ),
    Mutant(
        "jackknife_interval",
        "ties ranked backwards",
        "«wanted - (same ? low.below : low.up_to)»",
        "same ? low.up_to - 1 - wanted : wanted - low.up_to",
    ),
    Mutant("jackknife_interval", "sides exchanged", "residuals[i], «side»)", "1 - side"),
    Mutant("jackknife_interval", "NaN passed over", "numbers += «keys[k] < Task::kTop»", "true"),
    Mutant(
        "jackknife_interval",
        "order statistic after the ties too soon",
        "same = «wanted < low.up_to»",
        "wanted + 1 < low.up_to",
    ),
    Mutant(
        "jackknife_interval", "empty slots counted", "above += «keys[k] > key && k * kWarp + lane < m»", "keys[k] > key"
    ),
    Mutant("jackknife_interval", "not above the key", "if («keys[k] > key && keys[k] < least»)", "keys[k] < least"),
    Mutant("jackknife_interval", "rows beyond the grid lost", "t += «int64_t(gridDim.x) * kWarps»", "int64_t(1) << 40"),
    Mutant("jackknife_interval", "residual rows strided", "all.data + t / 2 * «all.stride»", "all.n_cols"),
    Mutant(
        "jackknife_interval",
        "histogram not cleared in time",
        "scratch.histogram[threadIdx.x] = 0; «__syncthreads();»",
        ";",
    ),
    Mutant("jackknife_interval", "histogram read too early", "% kDigits], 1u); } «__syncthreads();»", ";"),
    Mutant(
        "jackknife_interval", "warp totals read too early", "scratch.warp_totals[warp] = sum; «__syncthreads();»", ";"
    ),
    Mutant("jackknife_interval", "digit read too early", "scratch.count = count; } «__syncthreads();»", ";"),
    Mutant("jackknife_interval", "scan skips a lane", "if («lane >= offset») sum += left;", "lane > offset"),
    Mutant("jackknife_interval", "last digit left out", "«shift >= 0»; shift -= 8", "shift > 0"),
    Mutant(
        "jackknife_interval",
        "not above the key in a long row",
        "if («key > low.key && key < low.above»)",
        "key < low.above",
    ),
    Mutant("jackknife_interval", "place counts read too early", "= __popc(lanes); «__syncthreads();»", ";"),
    Mutant("jackknife_interval", "place read too early", "scratch.place = int32_t(i); «__syncthreads();»", ";"),
    Mutant("jackknife_interval", "ties off by one in a long row", "«before == ordinal»", "before == ordinal + 1"),
    Mutant("jackknife_interval", "NaN passed over in a long row", "«has_nan |= key == IntervalTask<T>::kTop;»", ";"),
    Mutant("masked_sum", "inactive units counted", "sum.add(«z[j + v]», t.weight[j + v]", "T(1)"),
    Mutant("masked_sum", "last unit lost", "«j < h»; j += kSize", "j + kSize < h"),
    Mutant("masked_sum", "bias of another direction", "*bias = «t.bias + i * h»;", "t.bias"),
    Mutant("masked_sum", "row stride of z forgotten", "t.z.data + «r * t.z.stride»", "r * h"),
    Mutant("masked_sum", "what was there is overwritten", "sum.finish(«*out»)", "T(0)"),
    Mutant(
        "masked_sum",
        "sums beyond the grid lost",
        "k += «int64_t(gridDim.x) * kMaskedSumThreads»",
        "int64_t(1) << 40",
    ),
    Mutant(
        "message_interval",
        "last model without a score",
        "«i < scores.messages.n_cols»",
        "i + 1 < scores.messages.n_cols",
    ),
    Mutant("message_interval", "shift of another model", "«scores.shift[i]»", "scores.shift[0]"),
    Mutant("message_interval", "map's bias forgotten", "scores.scale, «scores.bias»)", "T(0)"),
    Mutant("message_interval", "edges of the first nodes for all", "scores.a.indptr += «first»", "0"),
    Mutant("message_interval", "logits of the first nodes for all", "scores.logits += «first»", "0"),
    Mutant("message_interval", "ends of the first nodes for all", "ends + «2 * first»", "0"),
    Mutant(
        "message_interval",
        "higher order statistic taken too late",
        "«task.rank.high < low.up_to»",
        "task.rank.low < low.up_to",
    ),
    Mutant("message_interval", "NaN passed over", "«low.has_nan»", "false"),
    Mutant("message_interval", "warps share a row", "sums + «v * scores.messages.n_cols»", "0"),
    Mutant(
        "message_interval",
        "nodes beyond the grid lost",
        "v += «int64_t(gridDim.x) * kMessageWarps»",
        "int64_t(1) << 40",
    ),
    Mutant(
        "message_interval",
        "levels exchanged",
        "side, «side == 0 ? lower : upper»); const WarpRow",
        "side == 0 ? upper : lower",
    ),
]


def of_op(op: str) -> list[Mutant]:
    """Returns the planted bugs of one operator; bug number k (from 1) is element k - 1."""
    return [mutant for mutant in MUTANTS if mutant.op == op]


def find(source: str, mutant: Mutant) -> tuple[int, int]:
    """Returns where the part to replace begins and ends in `source`."""
    before, _, rest = mutant.text.partition("«")
    part, _, after = rest.partition("»")
    loose = [r"\s*".join(re.escape(word) for word in piece.split()) for piece in (before, part, after)]
    found = list(re.finditer(rf"{loose[0]}\s*(?P<part>{loose[1]})\s*{loose[2]}", source))
    if not part or len(found) != 1:
        raise LookupError(f"{mutant.op}.cuh: {mutant.name!r} must match once, matches {len(found)} times")
    return found[0].span("part")


def plant(source: str, mutants: list[Mutant]) -> str:
    """Returns `source` with every bug in it, each behind `emulator::mutant == number`."""
    places: dict[tuple[int, int], list[tuple[int, Mutant]]] = {}
    for number, mutant in enumerate(mutants, start=1):
        places.setdefault(find(source, mutant), []).append((number, mutant))
    for (begin, end), planted in sorted(places.items(), reverse=True):
        right = source[begin:end]
        for number, mutant in planted:
            if right.endswith((";", "}")):
                right = f"if (emulator::mutant == {number}) {{ {mutant.wrong} }} else {{ {right} }}"
            else:
                right = f"(emulator::mutant == {number} ? ({mutant.wrong}) : ({right}))"
        source = source[:begin] + right + source[end:]
    return source
