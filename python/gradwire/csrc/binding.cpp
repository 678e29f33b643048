// The Python module gradwire._binding: Rank and Backend. Compiled for the installed PyTorch.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <tuple>

#include "backend.hpp"

namespace {

using gradwire::Backend;
using gradwire::Rank;
using BoundBackend = py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>;
using GroupArguments = std::tuple<uint32_t, std::vector<uint32_t>, int>;
// Not for py::init, which registers the new object after its factory, and needs the GIL for that.
using NoGil = py::call_guard<py::gil_scoped_release>;

py::dict counters_of(Backend& backend) {
  const auto counters = backend.core().counters();
  py::dict out;
  out["sent_segments"] = counters.sent_segments;
  out["lost_segments"] = counters.lost_segments;
  out["repaired_segments"] = counters.repaired_segments;
  out["received_segments"] = counters.received_segments;
  out["ledger_lost_segments"] = counters.ledger_lost_segments;
  out["malformed_packets"] = counters.malformed_packets;
  out["faults_dropped"] = counters.faults_dropped;
  out["kernel_drops"] = counters.kernel_drops;
  out["sent_bytes"] = counters.sent_bytes;
  out["received_bytes"] = counters.received_bytes;
  return out;
}

std::vector<gw_layer> layers_of(const std::vector<uint64_t>& offsets,
                                const std::vector<uint32_t>& layers) {
  TORCH_CHECK(offsets.size() == layers.size(), "gradwire: ", offsets.size(),
              " layer offsets for ", layers.size(), " layers: give one offset for each");
  std::vector<gw_layer> out;
  for (size_t i = 0; i < layers.size(); ++i) out.push_back({offsets[i], layers[i], 0});
  return out;
}

void bind_rank(py::module_& module) {
  py::class_<Rank, std::shared_ptr<Rank>>(module, "Rank")
      .def(py::init([](const std::array<std::string, 3>& settings,
                       const std::tuple<uint32_t, uint32_t, int32_t>& place,
                       const std::string& host, const std::array<std::string, 4>& credentials,
                       const std::string& name) {
             const auto& [job, trace, log] = settings;
             const auto& [rank, world, local] = place;
             const auto& [token, certificate, key, authority] = credentials;
             const py::gil_scoped_release no_gil;
             return std::make_shared<Rank>(Rank::Settings{job, trace, log},
                                           Rank::Place{rank, world, local}, host,
                                           Rank::Credentials{token, certificate, key, authority},
                                           name);
           }),
           py::arg("settings"), py::arg("place"), py::arg("host"), py::arg("credentials"),
           py::arg("job"))
      .def("rendezvous", &Rank::rendezvous, NoGil())
      .def("join", &Rank::join, py::arg("rendezvous"), py::arg("timeout_seconds"), NoGil())
      .def("trace", &Rank::trace_json, NoGil())
      .def("close", [](Rank& rank) { rank.close(); }, NoGil())
      .def_property_readonly("job", &Rank::job)
      .def_property_readonly("is_open", &Rank::is_open)
      .def("takes_operations", &Rank::takes_operations, NoGil());
  module.def("close_all", &Rank::close_all, py::arg("ranks"), py::arg("patience"), NoGil());
}

void bind_gradients(BoundBackend& backend) {
  backend
      .def(
          "allreduce_tagged",
          [](Backend& backend, at::Tensor tensor, const std::vector<uint64_t>& layer_offsets,
             const std::vector<uint32_t>& layers, uint32_t layer_count, double tolerance,
             uint32_t step, uint64_t tensor_key, const c10d::ReduceOp& op, uint32_t codec,
             double codec_share) {
            return backend.allreduce_gradient(
                tensor, {op, layers_of(layer_offsets, layers), layer_count, tolerance, step,
                         tensor_key, codec, codec_share});
          },
          py::arg("tensor"), py::kw_only(), py::arg("layer_offsets"), py::arg("layers"),
          py::arg("layer_count"), py::arg("tolerance"), py::arg("step"), py::arg("tensor_key"),
          py::arg("op") = c10d::ReduceOp(c10d::ReduceOp::AVG),
          py::arg("codec") = uint32_t{GW_CODEC_NONE}, py::arg("codec_share") = 0.0, NoGil())
      .def(
          "reduce_scatter_tagged",
          [](Backend& backend, at::Tensor output, at::Tensor input, uint32_t layer,
             uint32_t layer_count, double tolerance, uint32_t step, uint64_t tensor_key,
             const c10d::ReduceOp& op, uint32_t codec, double codec_share) {
            return backend.reduce_scatter_gradient(
                output, input, {op, {{0, layer, 0}}, layer_count, tolerance, step, tensor_key,
                                codec, codec_share});
          },
          py::arg("output"), py::arg("input"), py::kw_only(), py::arg("layer"),
          py::arg("layer_count"), py::arg("tolerance"), py::arg("step"), py::arg("tensor_key"),
          py::arg("op") = c10d::ReduceOp(c10d::ReduceOp::AVG),
          py::arg("codec") = uint32_t{GW_CODEC_NONE}, py::arg("codec_share") = 0.0, NoGil())
      .def("join", &Backend::join, py::arg("works"), py::arg("tensor"), NoGil())
      .def(
          "take_residual",
          [](Backend& backend, uint64_t tensor_key, int64_t elements, at::ScalarType dtype) {
            const auto values = backend.take_residual(tensor_key, elements, dtype);
            return values.defined() ? std::make_optional(values) : std::nullopt;
          },
          py::arg("tensor_key"), py::arg("elements"), py::arg("dtype"), NoGil())
      .def("scale_residual", &Backend::scale_residual, py::arg("tensor_key"), py::arg("factor"),
           NoGil());
}

// Messages that tolerate loss, for a parameter server.
void bind_messages(py::module_& module) {
  using gradwire::PendingWork;
  py::class_<PendingWork, c10::intrusive_ptr<PendingWork>, c10d::Work>(module, "Message")
      .def("holes", &PendingWork::holes);
  py::class_<gradwire::Loss>(module, "Loss")
      .def(py::init([](const std::vector<uint64_t>& layer_offsets,
                       const std::vector<uint32_t>& layers, uint32_t layer_count, double tolerance,
                       uint32_t step, uint64_t tensor_key, bool keeps_previous) {
             const uint32_t holes = keeps_previous ? GW_HOLES_PREVIOUS : GW_HOLES_OF_JOB;
             return gradwire::Loss{layers_of(layer_offsets, layers), layer_count, tolerance, step,
                                   tensor_key, holes};
           }),
           py::kw_only(), py::arg("layer_offsets"), py::arg("layers"), py::arg("layer_count"),
           py::arg("tolerance"), py::arg("step"), py::arg("tensor_key"),
           py::arg("keeps_previous"));
  const auto message = [](uint32_t kind) {
    return [kind](Backend& backend, const at::Tensor& tensor, int peer, int tag,
                  const gradwire::Loss& loss) {
      return backend.lossy_message({kind, peer, tag}, tensor, loss);
    };
  };
  module.def("send_lossy", message(GW_SEND), py::arg("backend"), py::arg("tensor"), py::arg("to"),
             py::arg("tag"), py::arg("loss"), NoGil());
  module.def("receive_lossy", message(GW_RECV), py::arg("backend"), py::arg("tensor"),
             py::arg("source"), py::arg("tag"), py::arg("loss"), NoGil());
}

void bind_backend(py::module_& module) {
  py::class_<gradwire::Staging>(module, "Staging")
      .def(py::init([](bool stream_wait, bool of_host) {
             return gradwire::Staging{stream_wait, of_host};
           }),
           py::kw_only(), py::arg("stream_wait"), py::arg("of_host"));
  BoundBackend backend(module, "Backend");
  backend
      .def(py::init([](std::shared_ptr<Rank> rank, const GroupArguments& group,
                       c10::intrusive_ptr<c10d::Store> store,
                       const c10::intrusive_ptr<c10d::Backend::Options>& options,
                       const gradwire::Staging& staging) {
             const auto& [number, ranks, position] = group;
             const py::gil_scoped_release no_gil;
             return c10::make_intrusive<Backend>(
                 std::move(rank), gradwire::Group{number, position, ranks}, options,
                 std::move(store), staging);
           }),
           py::arg("rank"), py::arg("group"), py::arg("store"), py::arg("options"),
           py::arg("staging"))
      .def("perform_nocolor_split", [](Backend&, const at::Device&) {})
      .def("counters", &counters_of)
      .def("job",
           [](Backend& backend) {
             return py::module_::import("json").attr("loads")(backend.core().job_json());
           })
      .def("job_tolerance", [](Backend& backend) { return backend.core().job_tolerance(); })
      .def(
          "tune",
          [](Backend& backend, double step_seconds) { return backend.core().tune(step_seconds); },
          py::arg("step_seconds"), NoGil())
      .def(
          "reschedule",
          [](Backend& backend, uint64_t chunk, uint64_t credit) {
            backend.core().reschedule(chunk, credit);
          },
          py::arg("chunk"), py::arg("credit"), NoGil());
  bind_gradients(backend);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::module_::import("torch.distributed");
  bind_rank(module);
  bind_backend(module);
  bind_messages(module);
}
