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


# What is wrong, the piece of the source, what replaces the part of it between « and »; by operator.
PLANTED = {
    "propagate": (
        (
            "last column lost",
            "return «column + tile * Layout::kStep < end»;",
            "column + 1 + tile * Layout::kStep < end",
        ),
        ("weight of another entry", "a.values + «chunk + entry»", "chunk + seat.loader"),
        (
            "row stride of x forgotten",
            "chunk + entry); const T* row = x.data + «int64_t(nodes[j]) * x.stride»",
            "int64_t(nodes[j]) * x.n_cols",
        ),
        ("second pack of a lane from the first", "seat.lane), «row + t * Layout::kStep»", "row"),
        ("entries read past the end", "«e < end» ? a.indices[e]", "true"),
        ("copies not waited for", "«wait_for_copies();» __syncthreads();", ";"),
        ("chunk read before others' copies are there", "wait_for_copies(); «__syncthreads();»", ";"),
        ("chunk overwritten while read", ": end); «__syncthreads();» chunk +=", ";"),
        ("next chunk's nodes are this one's", "nodes_of<T, Layout>(a, «chunk + Layout::kEntries», end,", "chunk"),
        ("slots not all merged", "offset < «Layout::kAcross * Layout::kSplit»", "Layout::kAcross * Layout::kSplit / 2"),
        ("a row that goes on begins anew", "if («row_begin >= chunk») mine = {};", "true"),
        ("turns begin with the chunk", "& («Layout::kSplit - 1»)", "0"),
        ("last entry dropped", "e < «int(to - chunk)»; e += Layout::kSplit", "int(to - chunk) - 1"),
        ("row runs into the next", "to = «row_end < stop ? row_end : stop»", "stop"),
        ("empty rows not written", "(row_end > chunk || «chunk == begin»)", "false"),
        ("rows after the first of each group lost", "«at += Layout::kGroups;» }", "break;"),
        ("long row runs into the next", "(a, x, begin, «end», seat);", "end + 1"),
        (
            "row stride of x forgotten in a long row",
            "seat.loader]; const T* row = x.data + «int64_t(nodes[j]) * x.stride»",
            "int64_t(nodes[j]) * x.n_cols",
        ),
        ("second pack of a long row from the first", "Size>(«row + t * Layout::kStep»)", "row"),
        (
            "weight of another entry of a long row",
            "a.values[«first + j * Layout::kLoaders + seat.loader»]",
            "first + j * Layout::kLoaders",
        ),
        ("entries of a long row twice", "(a, «first + kBatch * Layout::kLoaders», end,", "first"),
        ("entries of a long row lost", "first += «kBatch * Layout::kLoaders»", "8 * Layout::kLoaders"),
        ("long row read before it is written", "= mine.weights; } «__syncthreads();» if (seat.loader < left / 2)", ";"),
        ("long row overwritten while read", "left / 2]); } } «__syncthreads();»", ";"),
        ("half of a long row lost", "«left / 2 * Layout::kAcross»", "left / 4 * Layout::kAcross"),
        ("rows after a long one lost", "«row = next;»", "row = n;"),
        ("rows beyond the grid lost", "row += «int64_t(gridDim.x) * rows»", "int64_t(1) << 40"),
        ("tiles beyond the grid lost", "begin += «int64_t(gridDim.y) * Layout::kColumns»", "int64_t(1) << 40"),
    ),
    "neighbour_means": (
        ("weights not merged", "«__shfl_xor_sync(kFullMask, weights.sum, offset)»", "0.0"),
        ("weights of the lane itself", "«__shfl_xor_sync(kFullMask, weights.sum, offset)»", "weights.sum"),
        (
            "sums, not means",
            "«launch_rows<MeanSum>(a, x, out, stream, limits);»",
            "launch_propagate(a, x, out, stream, limits);",
        ),
    ),
    "node_gradients": (
        ("bias without its entries", "* inputs.stride + a] : «T(1)»;", "T(0)"),
        ("last entry dropped", "for (int64_t e = begin; «e < end»; ++e)", "e + 1 < end"),
        ("last pack lost", "«k < n_packs»;", "k < n_packs - 1"),
        ("row stride of out forgotten", "«i * out.stride» + k * kSize", "i * out.n_cols"),
        ("entry of another node", "f.delta + «e * f.h» + b", "(e - begin) * f.h"),
        ("zero fill missing", "«row[c] = T(0);»", ";"),
        ("no barrier after the zero fill", "row[c] = T(0); «__syncthreads();»", ";"),
        ("no barrier between entries", "row + n_weights + b); «__syncthreads();»", ";"),
        ("non-zeros of a row lost", "«k += blockDim.y»", "k += inputs.indptr[node + 1]"),
    ),
    "block_cg": (
        ("sign of alpha", "cg_along(r[i], «-alpha», ap[i])", "alpha"),
        ("old direction dropped", "cg_along(z[i], «beta», p[i])", "0.0"),
        ("sums read before they are written", "= value; «__syncthreads();»", ";"),
        ("sums overwritten while read", "«__syncthreads();» // the sums of the call before", ";"),
        ("warps that are not there summed", "«lane < n_warps ? warp_sums[lane] : 0.0»", "warp_sums[lane]"),
        (
            "half of each warp left out of the sum",
            "n_warps = int(blockDim.x / kWarp); for (int offset = «kWarp / 2»;",
            "kWarp / 4",
        ),
        (
            "finished columns move on",
            "«if (column.status != kCgRunning) continue;» const int64_t start = j * columns.p; const double alpha",
            ";",
        ),
        ("step in spite of breakdown", "if («column.status == kCgRunning») { double r_dot_r", "true"),
        ("state not kept", "«if (threadIdx.x == 0) columns.state[j] = column;» // every thread", ";"),
        ("last number lost", "i < «start + columns.p»; i += blockDim.x) { const T residual", "start + columns.p - 1"),
    ),
    "jackknife_interval": (
        (
            "rank off by one",
            "if («__reduce_add_sync(kFullMask, below) <= rank»)",
            "__reduce_add_sync(kFullMask, below) < rank",
        ),
        (
            "ties ranked backwards",
            "«wanted - (same ? low.below : low.up_to)»",
            "same ? low.up_to - 1 - wanted : wanted - low.up_to",
        ),
        ("sides exchanged", "residuals[i], «side»)", "1 - side"),
        ("NaN passed over", "numbers += «keys[k] < Task::kTop»", "true"),
        ("order statistic after the ties too soon", "same = «wanted < low.up_to»", "wanted + 1 < low.up_to"),
        ("empty slots counted", "above += «keys[k] > key && k * kWarp + lane < m»", "keys[k] > key"),
        ("not above the key", "if («keys[k] > key && keys[k] < least»)", "keys[k] < least"),
        ("rows beyond the grid lost", "t += «int64_t(gridDim.x) * kWarps»", "int64_t(1) << 40"),
        ("residual rows strided", "all.data + t / 2 * «all.stride»", "all.n_cols"),
        ("histogram not cleared in time", "scratch.histogram[threadIdx.x] = 0; «__syncthreads();»", ";"),
        ("histogram read too early", "% kDigits], 1u); } «__syncthreads();»", ";"),
        ("warp totals read too early", "scratch.warp_totals[warp] = sum; «__syncthreads();»", ";"),
        ("digit read too early", "scratch.count = count; } «__syncthreads();»", ";"),
        ("scan skips a lane", "if («lane >= offset») sum += left;", "lane > offset"),
        ("last digit left out", "«shift >= 0»; shift -= 8", "shift > 0"),
        ("not above the key in a long row", "if («key > low.key && key < low.above»)", "key < low.above"),
        ("place counts read too early", "= __popc(lanes); «__syncthreads();»", ";"),
        ("place read too early", "scratch.place = int32_t(i); «__syncthreads();»", ";"),
        ("ties off by one in a long row", "«before == ordinal»", "before == ordinal + 1"),
        ("NaN passed over in a long row", "«has_nan |= key == IntervalTask<T>::kTop;»", ";"),
    ),
    "masked_sum": (
        ("inactive units counted", "sum.add(«z[j + v]», t.weight[j + v]", "T(1)"),
        ("last unit lost", "«j < h»; j += kSize", "j + kSize < h"),
        ("bias of another direction", "*bias = «t.bias + i * h»;", "t.bias"),
        ("row stride of z forgotten", "t.z.data + «r * t.z.stride»", "r * h"),
        ("what was there is overwritten", "sum.finish(«*out»)", "T(0)"),
        ("sums beyond the grid lost", "k += «int64_t(gridDim.x) * kMaskedSumThreads»", "int64_t(1) << 40"),
    ),
    "message_interval": (
        ("last model without a score", "«i < scores.messages.n_cols»", "i + 1 < scores.messages.n_cols"),
        ("shift of another model", "«scores.shift[i]»", "scores.shift[0]"),
        ("map's bias forgotten", "scores.scale, «scores.bias»)", "T(0)"),
        ("edges of the first nodes for all", "scores.a.indptr += «first»", "0"),
        ("logits of the first nodes for all", "scores.logits += «first»", "0"),
        ("ends of the first nodes for all", "ends + «2 * first»", "0"),
        ("higher order statistic taken too late", "«task.rank.high < low.up_to»", "task.rank.low < low.up_to"),
        ("NaN passed over", "«low.has_nan»", "false"),
        ("warps share a row", "sums + «v * scores.messages.n_cols»", "0"),
        ("nodes beyond the grid lost", "v += «int64_t(gridDim.x) * kMessageWarps»", "int64_t(1) << 40"),
        ("levels exchanged", "side, «side == 0 ? lower : upper»); const WarpRow", "side == 0 ? upper : lower"),
    ),
}
MUTANTS = [Mutant(op, *each) for op, planted in PLANTED.items() for each in planted]


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
