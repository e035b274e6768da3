// The Python module: shapes and dtypes were checked by calirare_ext; here only what memory safety needs is checked.
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include "../ops/device.h"
#include "../solvers/block_cg.h"
#include "../solvers/confidence_bins.h"
#include "../solvers/eice_term.h"
#include "../solvers/gcn_hessian.h"
#include "../solvers/launch.h"
#include "../solvers/loo_messages.h"
#include "../solvers/masked_gram.h"
#include "../solvers/network_loss.h"
#include "../solvers/propagate_layouts.h"

namespace py = pybind11;

namespace calirare {
namespace {

const auto no_gil = py::call_guard<py::gil_scoped_release>();

void bind_csr(py::module_& m) {
  py::class_<CsrTensors>(m, "CsrTensors", "A CSR matrix as tensors; calirare_ext.Csr makes it.")
      .def(py::init([](at::Tensor indptr, at::Tensor indices, at::Tensor values, int64_t n_cols) {
             CsrTensors a{std::move(indptr), std::move(indices), std::move(values), n_cols};
             check_csr(a, "Csr");
             return a;
           }),
           py::arg("indptr"), py::arg("indices"), py::arg("values"), py::arg("n_cols"));
}

void bind_operators(py::module_& m) {
  m.def("propagate_out", &propagate_out, no_gil, py::arg("a"), py::arg("x"), py::arg("out"));
  m.def("neighbour_means_out", &neighbour_means_out, no_gil, py::arg("a"), py::arg("x"), py::arg("out"));
  m.def("node_gradients_out",
        py::overload_cast<const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, at::Tensor&>(
            &node_gradients_out),
        no_gil, py::arg("entry_ptr"), py::arg("nodes"), py::arg("delta"), py::arg("inputs"), py::arg("out"));
  m.def("node_gradients_out",
        py::overload_cast<const at::Tensor&, const at::Tensor&, const at::Tensor&, const CsrTensors&, at::Tensor&>(
            &node_gradients_out),
        no_gil, py::arg("entry_ptr"), py::arg("nodes"), py::arg("delta"), py::arg("inputs"), py::arg("out"));
  m.def(
      "jackknife_interval",
      [](const at::Tensor& scores, const at::Tensor& residuals, double q_lower, double q_upper) {
        const IntervalTensors result = jackknife_interval(scores, residuals, q_lower, q_upper);
        return std::make_tuple(result.ends, result.places);
      },
      no_gil, py::arg("scores"), py::arg("residuals"), py::arg("q_lower"), py::arg("q_upper"));
}

void bind_eice(py::module_& m) {
  m.def(
      "eice_term",
      [](const at::Tensor& logits, const at::Tensor& change, const at::Tensor& own_logits, const at::Tensor& own_change,
         const at::Tensor& targets, double q_lower, double q_upper, bool confidence, bool scores, bool residuals) {
        const EiceInputs inputs{logits, change, own_logits, own_change, targets, {q_lower, q_upper}};
        const EiceTerm term = eice_term(inputs, {confidence, scores, residuals});
        return std::make_tuple(term.value, term.gradient, term.own_gradient);
      },
      no_gil, py::arg("logits"), py::arg("change"), py::arg("own_logits"), py::arg("own_change"), py::arg("targets"),
      py::arg("q_lower"), py::arg("q_upper"), py::arg("confidence"), py::arg("scores"), py::arg("residuals"));
}

LooDirections directions_of(const at::Tensor& first, const at::Tensor& second, const at::Tensor& contrast,
                            const std::optional<at::Tensor>& mix) {
  return {first, second, contrast, mix.value_or(at::Tensor())};
}

template <typename Inputs>
void bind_loo_messages(py::module_& m) {
  m.def(
      "loo_messages_out",
      [](const Inputs& inputs, const at::Tensor& z, const at::Tensor& first, const at::Tensor& second,
         const at::Tensor& contrast, const std::optional<at::Tensor>& mix,
         at::Tensor& out) { loo_messages_out(inputs, z, directions_of(first, second, contrast, mix), out); },
      no_gil, py::arg("inputs"), py::arg("z"), py::arg("first"), py::arg("second"), py::arg("contrast"), py::arg("mix"),
      py::arg("out"));
}

void bind_fused(py::module_& m) {
  bind_loo_messages<at::Tensor>(m);
  bind_loo_messages<CsrTensors>(m);
  m.def(
      "loo_messages_out",
      [](const CsrTensors& inputs, const at::Tensor& z, const at::Tensor& entry_ptr, const at::Tensor& nodes,
         const at::Tensor& delta, const CsrTensors& factors, const std::optional<at::Tensor>& seen,
         const at::Tensor& second, const at::Tensor& contrast, const std::optional<at::Tensor>& mix, at::Tensor& out) {
        loo_messages_out(inputs, z, directions_of(at::Tensor(), second, contrast, mix),
                         DirectionFactors{entry_ptr, nodes, delta, factors, seen.value_or(at::Tensor())}, out);
      },
      no_gil, py::arg("inputs"), py::arg("z"), py::arg("entry_ptr"), py::arg("nodes"), py::arg("delta"),
      py::arg("factors"), py::arg("seen"), py::arg("second"), py::arg("contrast"), py::arg("mix"), py::arg("out"));
  m.def("masked_gram_out", &masked_gram_out, no_gil, py::arg("a"), py::arg("panels"), py::arg("mask"),
        py::arg("scaled"), py::arg("out"));
  m.def(
      "message_interval",
      [](const CsrTensors& a, const at::Tensor& messages, const at::Tensor& logits, const at::Tensor& shift,
         const at::Tensor& residuals, double q_lower, double q_upper, double scale, double bias) {
        return message_interval({a, messages, logits, shift, scale, bias}, residuals, q_lower, q_upper);
      },
      no_gil, py::arg("a"), py::arg("messages"), py::arg("logits"), py::arg("shift"), py::arg("residuals"),
      py::arg("q_lower"), py::arg("q_upper"), py::arg("scale"), py::arg("bias"));
}

using CgTuple = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

CgTuple as_tuple(CgResult result) { return {result.x, result.status, result.iterations, result.residual_norm}; }

Curvature curvature_of(const std::string& name) {
  if (name == "exact") return Curvature::kExact;
  TORCH_CHECK_VALUE(name == "ggn", "curvature must be 'exact' or 'ggn', got '", name, "'");
  return Curvature::kGaussNewton;
}

void bind_solvers(py::module_& m) {
  py::class_<GcnTape>(m, "GcnTape", "A network's forward and backward pass on its receptive field.")
      .def(py::init<>())
      .def_readwrite("sparse_inputs", &GcnTape::sparse_inputs)
      .def_readwrite("sparse_inputs_t", &GcnTape::sparse_inputs_t)
      .def_readwrite("dense_inputs", &GcnTape::dense_inputs)
      .def_readwrite("first_block", &GcnTape::first_block)
      .def_readwrite("first_block_t", &GcnTape::first_block_t)
      .def_readwrite("blocks", &GcnTape::blocks)
      .def_readwrite("blocks_t", &GcnTape::blocks_t)
      .def_readwrite("aggregated", &GcnTape::aggregated)
      .def_readwrite("weights", &GcnTape::weights)
      .def_readwrite("masks", &GcnTape::masks)
      .def_readwrite("deltas", &GcnTape::deltas)
      .def_readwrite("probabilities", &GcnTape::probabilities)
      .def_readwrite("loss_weights", &GcnTape::loss_weights);
  m.def(
      "hessian_product",
      [](const GcnTape& tape, const at::Tensor& vectors, const std::string& curvature, double damping) {
        return hessian_product(tape, vectors, curvature_of(curvature), damping);
      },
      no_gil, py::arg("tape"), py::arg("vectors"), py::arg("curvature"), py::arg("damping"));
  m.def("move_logits", &move_logits, no_gil, py::arg("tape"), py::arg("vectors"));
  m.def(
      "solve_inverse_hvp",
      [](const GcnTape& tape, const at::Tensor& rhs, const std::string& curvature, double damping, double tolerance,
         int64_t max_iterations, int64_t check_every, const std::optional<Product>& precondition) {
        const Curvature kind = curvature_of(curvature);
        const Product product = [&](const at::Tensor& v) { return hessian_product(tape, v, kind, damping); };
        return as_tuple(
            block_cg(product, precondition.value_or(Product()), rhs, {tolerance, max_iterations, check_every}));
      },
      no_gil, py::arg("tape"), py::arg("rhs"), py::arg("curvature"), py::arg("damping"), py::arg("tolerance"),
      py::arg("max_iterations"), py::arg("check_every"), py::arg("precondition") = py::none());
  m.def(
      "block_cg",
      [](const Product& product, const at::Tensor& rhs, double tolerance, int64_t max_iterations, int64_t check_every,
         const std::optional<Product>& precondition) {
        return as_tuple(
            block_cg(product, precondition.value_or(Product()), rhs, {tolerance, max_iterations, check_every}));
      },
      no_gil, py::arg("product"), py::arg("rhs"), py::arg("tolerance"), py::arg("max_iterations"),
      py::arg("check_every"), py::arg("precondition") = py::none());
}

void bind_networks(py::module_& m) {
  py::class_<Factor>(m, "Factor", "A matrix that multiplies, in the layout that serves it best.")
      .def(py::init([](const at::Tensor& dense) { return Factor{dense, {}, {}}; }), py::arg("dense"))
      .def(py::init([](const CsrTensors& rows) { return Factor{{}, rows, {}}; }), py::arg("rows"))
      .def(py::init([](const TileTensors& tiles) { return Factor{{}, {}, tiles}; }), py::arg("tiles"));
  py::class_<NetworkField>(m, "NetworkField", "What networks side by side read.")
      .def(py::init<>())
      .def_readwrite("inputs", &NetworkField::inputs)
      .def_readwrite("inputs_t", &NetworkField::inputs_t)
      .def_readwrite("blocks", &NetworkField::blocks)
      .def_readwrite("blocks_t", &NetworkField::blocks_t)
      .def_readwrite("widths", &NetworkField::widths);
  m.def("network_products", &network_products, no_gil, py::arg("field"), py::arg("parameters"));
  m.def(
      "network_loss",
      [](const NetworkField& field, const at::Tensor& parameters, const at::Tensor& targets, const at::Tensor& weights,
         const std::vector<at::Tensor>& factors, double scale, bool composed, at::Tensor& gradient) {
        return network_loss(field, parameters, {targets, weights}, {factors, scale}, composed, gradient);
      },
      no_gil, py::arg("field"), py::arg("parameters"), py::arg("targets"), py::arg("weights"), py::arg("factors"),
      py::arg("scale"), py::arg("composed"), py::arg("gradient"));
  m.def(
      "adam_step",
      [](at::Tensor& theta, const at::Tensor& gradient, at::Tensor& first, at::Tensor& second, double weight_decay,
         double beta1, double beta2, double length, double scale, double epsilon) {
        adam_step(theta, gradient, first, second, {weight_decay, beta1, beta2, length, scale, epsilon});
      },
      no_gil, py::arg("theta"), py::arg("gradient"), py::arg("first"), py::arg("second"), py::arg("weight_decay"),
      py::arg("beta1"), py::arg("beta2"), py::arg("length"), py::arg("scale"), py::arg("epsilon"));
  m.def("dropout_factors", &dropout_factors, no_gil, py::arg("out"), py::arg("probability"), py::arg("key"));
}

void bind_measures(py::module_& m) {
  m.def("confidence_bins", &confidence_bins, no_gil, py::arg("probabilities"), py::arg("labels"), py::arg("weights"),
        py::arg("edges"), py::arg("slack"));
}

void bind_layouts(py::module_& m) {
  py::class_<TileTensors>(m, "TileTensors", "A CSR matrix in tiles of rows, each sorted by column.");
  m.def("propagate_tiles_out", &propagate_tiles_out, no_gil, py::arg("a"), py::arg("x"), py::arg("out"));
  m.def("cut_tiles", &cut_tiles, no_gil, py::arg("a"), py::arg("tile_rows"));
}

void bind_build(py::module_& m) {
  m.def("cuda_status", [] {
    std::string reason;
    const int count = cuda_device_count(&reason);
    return py::make_tuple(cuda_compiled(), count, reason);
  });
  m.attr("torch_version") = CALIRARE_TORCH_VERSION;
  m.attr("cuda_archs") = CALIRARE_CUDA_ARCHS;
}

}  // namespace
}  // namespace calirare

PYBIND11_MODULE(_C, m) {
  m.doc() = "CaliRare's compiled operators.";
  calirare::bind_build(m);
  calirare::bind_csr(m);
  calirare::bind_operators(m);
  calirare::bind_eice(m);
  calirare::bind_fused(m);
  calirare::bind_solvers(m);
  calirare::bind_networks(m);
  calirare::bind_measures(m);
  calirare::bind_layouts(m);
}
