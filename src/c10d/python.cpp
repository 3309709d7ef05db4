// The extension sumpter._C: the backend, its options and its status, for the package in python/sumpter.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "c10d/backend.h"
#include "c10d/errors.h"

namespace py = pybind11;

namespace sumpter {
namespace {

using Milliseconds = std::chrono::milliseconds;

// The threads of a group may be in Python, in a future's callback: whoever waits for them must not hold the
// interpreter's lock.
class PythonBackend : public SumpterBackend {
 public:
  using SumpterBackend::SumpterBackend;
  ~PythonBackend() override {
    const auto released = release_interpreter();
    close();
  }
  void shutdown() override {
    const auto released = release_interpreter();
    SumpterBackend::shutdown();
  }

 private:
  // Where this thread holds the lock.
  static std::unique_ptr<py::gil_scoped_release> release_interpreter() {
    const bool held = Py_IsInitialized() != 0 && PyGILState_Check() != 0;
    return held ? std::make_unique<py::gil_scoped_release>() : nullptr;
  }
};

WireFormat wire_format(const std::string& name) {
  for (const WireFormat format : {WireFormat::f32, WireFormat::bf16, WireFormat::f16, WireFormat::i8}) {
    if (name == name_of(format)) return format;
  }
  throw py::value_error("sumpter: no wire format '" + name + "'; there are f32, bf16, f16 and i8");
}

SumpterBackend& backend_of(c10d::Backend& backend) {
  auto* const ours = dynamic_cast<SumpterBackend*>(&backend);
  if (ours == nullptr) throw py::type_error("this group's backend is " + backend.getBackendName() + ", not sumpter");
  return *ours;
}

void check(const BackendOptions& options) {
  const auto positive = [](const char* name, const std::optional<Milliseconds>& time) {
    if (time && time->count() <= 0) throw py::value_error(std::string("sumpter: ") + name + " is not positive");
  };
  positive("timeout", options.own_timeout);
  positive("connect_timeout", options.connect_timeout);
  if (options.reducers && (*options.reducers < 0 || *options.reducers > kMaxReducers)) {
    throw py::value_error("sumpter: reducers is " + std::to_string(*options.reducers) + "; it must be 0 to " +
                          std::to_string(kMaxReducers));
  }
}

c10::intrusive_ptr<BackendOptions> make_options(const std::string& wire, std::size_t piece, std::optional<int> reducers,
                                                std::vector<int> reducer_cores, int window,
                                                std::optional<Milliseconds> timeout,
                                                std::optional<Milliseconds> connect_timeout,
                                                std::optional<std::string> trace) {
  auto options = c10::make_intrusive<BackendOptions>(timeout.value_or(kBackendDefaultTimeout));
  options->wire = wire_format(wire);
  options->piece = piece;
  options->reducers = reducers;
  options->reducer_cores = std::move(reducer_cores);
  options->window = window;
  options->own_timeout = timeout;
  options->connect_timeout = connect_timeout;
  options->trace = trace.value_or("");
  check(*options);
  return options;
}

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         Milliseconds timeout, c10::intrusive_ptr<BackendOptions> options,
                                         const std::optional<Choice>& known_choice, InnerGroup::Make make_inner) {
  if (options == nullptr) options = c10::make_intrusive<BackendOptions>(timeout);
  return c10::make_intrusive<PythonBackend>(
      store, BackendSettings{rank, size, timeout, std::move(options), known_choice, std::move(make_inner)});
}

py::dict status(c10d::Backend& backend) {
  SumpterBackend& ours = backend_of(backend);
  BackendStatus status;
  {
    const py::gil_scoped_release released;
    status = ours.status();
  }
  py::dict fields;
  fields["rank"] = status.rank;
  py::list members;
  for (std::size_t rank = 0; rank < status.processes.size(); ++rank) {
    members.append(py::make_tuple(rank, status.processes[rank]));
  }
  fields["members"] = members;
  fields["arena_bytes"] = status.arena_bytes;
  fields["bucket_bytes"] = status.bucket_bytes;
  fields["buckets_made"] = status.buckets_made;
  fields["reducers"] = status.reducers;
  fields["reducer_cores"] = status.reducer_cores;
  fields["reductions"] = status.choice.reductions == Reductions::background ? "background" : "waiting";
  fields["choice"] = status.choice.reason;
  fields["wire"] = status.wire;
  fields["piece"] = status.piece;
  fields["timeout"] = status.timeout;
  fields["connect_timeout"] = status.connect_timeout;
  fields["operations"] = status.counters.operations;
  fields["in_place"] = status.counters.in_place;
  fields["staged"] = status.counters.staged;
  fields["small"] = status.counters.small;
  fields["overflows"] = status.overflows;
  fields["inner"] = status.inner_made ? "gloo" : "none yet";
  return fields;
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "The torch.distributed backend of Sumpter; the package sumpter is its public side.";
  module.attr("TORCH_VERSION") = SUMPTER_TORCH_VERSION;

  py::module_::import("torch.distributed");  // where the base classes are registered
  py::class_<BackendOptions, c10::intrusive_ptr<BackendOptions>, c10d::Backend::Options>(module, "Options")
      .def(py::init(&make_options), py::kw_only(), py::arg("wire") = "f32", py::arg("piece") = GroupOptions{}.piece,
           py::arg("reducers") = py::none(), py::arg("reducer_cores") = std::vector<int>(),
           py::arg("window") = GroupOptions{}.window, py::arg("timeout") = py::none(),
           py::arg("connect_timeout") = py::none(), py::arg("trace") = py::none())
      .def_property_readonly("wire", [](const BackendOptions& options) { return std::string(name_of(options.wire)); })
      .def_readonly("piece", &BackendOptions::piece)
      .def_readonly("reducers", &BackendOptions::reducers)
      .def_readonly("reducer_cores", &BackendOptions::reducer_cores)
      .def_readonly("window", &BackendOptions::window)
      .def_readonly("timeout", &BackendOptions::own_timeout)
      .def_readonly("connect_timeout", &BackendOptions::connect_timeout)
      .def_property_readonly("trace", [](const BackendOptions& options) {
        return options.trace.empty() ? std::nullopt : std::optional(options.trace);
      });
  py::class_<Choice>(module, "Choice");

  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::arg("options"), py::arg("known_choice"), py::arg("make_inner"),
             py::call_guard<py::gil_scoped_release>());
  module.def("choice", [](c10d::Backend& backend) { return backend_of(backend).choice(); });
  module.def("status", &status);
  module.def(
      "compressed_all_reduce",
      [](c10d::Backend& backend, const at::Tensor& values, const std::vector<std::int64_t>& counts,
         const std::string& wire, const std::vector<at::Tensor>& errors, const std::vector<at::Tensor>& sum_errors) {
        SumpterBackend& ours = backend_of(backend);
        const WireFormat format = wire_format(wire);
        const py::gil_scoped_release released;
        return ours.compressed_all_reduce(values, counts, format, errors, sum_errors);
      },
      py::arg("backend"), py::arg("values"), py::arg("counts"), py::arg("wire"), py::arg("errors"),
      py::arg("sum_errors"));
}

}  // namespace sumpter
