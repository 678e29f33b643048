// The late device: a PyTorch device on which every missing wait shows, on any machine. Its streams
// are threads (streams.hpp), its memory cannot be touched from outside (memory.hpp). PyTorch runs
// all operators but copies on the CPU, between two copies.

#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/cuda/StreamBlock.hpp>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include "memory.hpp"

namespace late {

std::atomic<int64_t> live_events{0};
std::atomic<int64_t> strange_destructions{0};  // of an event while another device is current
std::atomic<bool> capturing{false};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Device = c10::Device;
  using Stream = c10::Stream;

  c10::DeviceType type() const override {
    return c10::kPrivateUse1;
  }
  Device exchangeDevice(Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override {
    return {c10::kPrivateUse1, current_device()};
  }
  void setDevice(Device device) const override {
    if (device.index() >= 0) device_of_thread = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override {
    setDevice(device);
  }
  Stream getStream(Device device) const override {
    return current_stream(device.index());
  }
  Stream getDefaultStream(Device device) const override {
    return stream_of(0, device.index());
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    const auto index = device.index() < 0 ? current_device() : device.index();
    return stream_of(Queues::get().next(index), index);
  }
  Stream getNewStream(Device device, int) const override {
    const auto index = device.index() < 0 ? current_device() : device.index();
    return stream_of(Queues::get().add(index), index);
  }
  Stream exchangeStream(Stream stream) const override {
    const auto before = current_stream(stream.device_index());
    stream_of_thread[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return kDevices;
  }

  void record(void** event, const Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event();
      ++live_events;
    }
    static_cast<Event*>(*event)->record(queue_of(stream));
  }
  void block(void* event, const Stream& stream) const override {
    if (event != nullptr) static_cast<Event*>(event)->delay(queue_of(stream));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || static_cast<Event*>(event)->query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) static_cast<Event*>(event)->synchronize();
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    if (event == nullptr) return;
    if (device >= 0 && device != current_device()) ++strange_destructions;
    --live_events;
    delete static_cast<Event*>(event);
  }

  bool queryStream(const Stream& stream) const override {
    return queue_of(stream).idle();
  }
  void synchronizeStream(const Stream& stream) const override {
    queue_of(stream).synchronize();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    for (auto* queue : Queues::get().of(device)) queue->synchronize();
  }
  bool isStreamCapturing(const Stream&) const override {
    return capturing;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    auto* own = static_cast<Allocation*>(data.get_context());
    if (own != nullptr && stream != own->stream) own->others.push_back(stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

DeviceAllocator device_memory;
PinnedAllocator pinned_memory;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &device_memory);
REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &pinned_memory);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return kDevices;
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    device_of_thread = device;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(device_of_thread, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override {
    return PinnedAllocator::holds(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_memory;
  }
  c10::Device getDeviceFromPtr(void*) const override {
    return {c10::kPrivateUse1, current_device()};
  }

  // FSDP2 frees and refills the memory of gathered parameters by this.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto data = device_memory.allocate(bytes);
    const auto kept = std::min(bytes, storage.nbytes());
    if (kept > 0) device_memory.copy_data(data.get(), storage.data(), kept);
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

// Blocks a stream until it is told to stop, as PyTorch's spinning kernel does on CUDA.
class Block final : public c10d::cuda::StreamBlock {
 public:
  explicit Block(std::chrono::milliseconds) {
    queue_of(current_stream(current_device())).push([state = state_] {
      while (!*state) std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
  }
  ~Block() override {
    *state_ = true;
  }
  void abort() override {
    *state_ = true;
  }
  c10d::cuda::StreamBlockStatus status() override {
    return *state_ ? c10d::cuda::ABORTED : c10d::cuda::RUNNING;
  }

 private:
  std::shared_ptr<std::atomic<bool>> state_ = std::make_shared<std::atomic<bool>>(false);
};

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const auto chosen = device.value_or(c10::Device(c10::kPrivateUse1, current_device()));
  const c10::DeviceGuard guard(chosen.has_index()
                                   ? chosen
                                   : c10::Device(c10::kPrivateUse1, current_device()));
  return at::detail::empty_strided_generic(size, stride, &device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::get_default_dtype_as_scalartype()));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const auto chosen = device.value_or(c10::Device(c10::kPrivateUse1, current_device()));
  const c10::DeviceGuard guard(chosen.has_index()
                                   ? chosen
                                   : c10::Device(c10::kPrivateUse1, current_device()));
  return at::detail::empty_generic(size, &device_memory,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::get_default_dtype_as_scalartype()), format);
}

// A tensor at its real address, for the thread of a stream.
std::function<at::Tensor()> reachable(const at::Tensor& tensor) {
  auto* data = Memory::get().real(tensor.const_data_ptr());
  return [data, sizes = tensor.sizes().vec(), strides = tensor.strides().vec(),
          type = tensor.scalar_type()] { return at::from_blob(data, sizes, strides, type); };
}

// On the current stream of the device. The caller waits if it must, as on CUDA: for memory of the
// host that is not pinned, and unless it said not to.
at::Tensor copy_from(const at::Tensor& given, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const auto from = given.sizes() == to.sizes() ? given : given.expand_as(to);
  const auto& on_device = from.is_cpu() ? to : from;
  const auto& other = from.is_cpu() ? from : to;
  auto& queue = queue_of(current_stream(on_device.device().index()));
  queue.push_late([source = reachable(from), target = reachable(to)] {
    at::AutoDispatchBelowADInplaceOrView below;
    target().copy_(source());
  });
  const bool pinned = other.is_cpu() && PinnedAllocator::holds(other.const_data_ptr());
  if (other.is_cpu() && !(non_blocking && pinned)) queue.synchronize();
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(sizes);
  const auto bytes = static_cast<size_t>(self.numel() + self.storage_offset()) * self.itemsize();
  auto* storage = self.storage().unsafeGetStorageImpl();
  if (bytes > storage->nbytes()) {
    const c10::DeviceGuard guard(self.device());
    auto data = device_memory.allocate(bytes);
    if (storage->nbytes() > 0) {
      device_memory.copy_data(data.get(), storage->data(), storage->nbytes());
    }
    storage->set_data_ptr(std::move(data));
    storage->set_nbytes(bytes);
  }
  return self;
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  const auto at = offset ? std::make_optional(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size),
                                           C10_AS_INTARRAYREF_SLOW(stride), at);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size,
                         c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size),
                                    C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor& set_source(at::Tensor& self, at::Storage source, c10::SymInt offset,
                       c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(source);
  self.unsafeGetTensorImpl()->set_storage_offset(offset.expect_int());
  self.unsafeGetTensorImpl()->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size),
                                                    C10_AS_INTARRAYREF_SLOW(stride));
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("resize_", &resize);
  library.impl("view", &view);
  library.impl("as_strided", &as_strided);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("set_.source_Storage_storage_offset", &set_source);
}

void on_the_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

}  // namespace late

namespace c10d::cuda {

C10_REGISTER_CLASS_WITH_PRIORITY(StreamBlockRegistry, CUDA, c10::REGISTRY_PREFERRED, late::Block);

}  // namespace c10d::cuda

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  at::RegisterPrivateUse1HooksInterface(new late::Hooks());
  module.def("set_delay", [](int longest_us, uint64_t seed) {
    late::longest_delay_us = longest_us;
    late::seed = seed;
  });
  module.def("set_capturing", [](bool on) { late::capturing = on; });
  module.def("live_events", [] { return late::live_events.load(); });
  module.def("strange_destructions", [] { return late::strange_destructions.load(); });
  // Keeps a stream busy, as a kernel does.
  module.def(
      "keep_busy",
      [](const c10::Stream& stream, int milliseconds) {
        late::queue_of(stream).push([milliseconds] {
          std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        });
      });
}
