// Memory of the late device: it cannot be touched at the address that PyTorch sees, only through a
// second mapping, which the device's own copies use. Freed memory is overwritten, in the order of
// the stream that it was allocated on, and given out again at once.
#pragma once

#include <c10/core/Allocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "streams.hpp"

namespace late {

constexpr int kPattern = 0x5a;

class Memory {
 public:
  static Memory& get() {
    static auto* memory = new Memory();  // outlives the threads of streams
    return *memory;
  }

  // An address that cannot be read or written.
  char* allocate(size_t bytes, const c10::Stream& stream) {
    std::lock_guard lock(mutex_);
    auto& spare = spare_[{key_of(stream), rounded(bytes)}];
    if (!spare.empty()) {
      auto* shown = spare.back();
      spare.pop_back();
      return shown;
    }
    return map(rounded(bytes));
  }

  // Memory of `stream` may be used again by what is enqueued there later. Other streams that use it
  // must have been recorded, or must be done.
  void free(char* shown, size_t bytes, const c10::Stream& stream) {
    queue_of(stream).push([this, shown, bytes] { std::memset(real(shown), kPattern, bytes); });
    std::lock_guard lock(mutex_);
    spare_[{key_of(stream), rounded(bytes)}].push_back(shown);
  }

  // The address at which the device's own copies reach the memory; others stay as they are.
  char* real(const void* shown) {
    auto* address = const_cast<char*>(static_cast<const char*>(shown));
    std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(address);
    if (block == blocks_.begin()) return address;
    --block;
    const auto offset = address - block->first;
    return offset < static_cast<ptrdiff_t>(block->second.bytes) ? block->second.real + offset
                                                                : address;
  }

 private:
  struct Block {
    char* real;
    size_t bytes;
  };

  static size_t rounded(size_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
  }

  static std::pair<int, int64_t> key_of(const c10::Stream& stream) {
    return {stream.device_index(), stream.id()};
  }

  char* map(size_t bytes) {
    const int file = memfd_create("late-device", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "no memory");
    auto* shown = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    auto* real = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    TORCH_CHECK(shown != MAP_FAILED && real != MAP_FAILED, "no memory");
    std::memset(real, kPattern, bytes);
    blocks_[static_cast<char*>(shown)] = {static_cast<char*>(real), bytes};
    return static_cast<char*>(shown);
  }

  std::mutex mutex_;
  std::map<char*, Block> blocks_;
  std::map<std::pair<std::pair<int, int64_t>, size_t>, std::vector<char*>> spare_;
};

// One allocation, and the streams that PyTorch was told of.
struct Allocation {
  char* shown;
  size_t bytes;
  c10::Stream stream;
  std::vector<c10::Stream> others;

  static void free(void* context) {
    auto* own = static_cast<Allocation*>(context);
    for (const auto& other : own->others) {
      Event used;
      used.record(queue_of(other));
      used.delay(queue_of(own->stream));
    }
    Memory::get().free(own->shown, own->bytes, own->stream);
    delete own;
  }
};

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kPrivateUse1, current_device());
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
    const auto stream = current_stream(device.index());
    auto* shown = Memory::get().allocate(bytes, stream);
    auto* own = new Allocation{shown, bytes, stream, {}};
    return {shown, own, &Allocation::free, device};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    auto& queue = queue_of(current_stream(current_device()));
    auto& memory = Memory::get();
    queue.push([to = memory.real(to), from = memory.real(from), bytes] {
      std::memcpy(to, from, bytes);
    });
  }
};

// Pinned memory of the host: overwritten as soon as it is freed.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* data = static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
    std::lock_guard lock(mutex());
    ranges()[data] = bytes;
    return {data, data, &free, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &free;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

  static bool holds(const void* data) {
    auto* address = const_cast<char*>(static_cast<const char*>(data));
    std::lock_guard lock(mutex());
    auto range = ranges().upper_bound(address);
    if (range == ranges().begin()) return false;
    --range;
    return address < range->first + std::max<size_t>(range->second, 1);
  }

  bool record_event(void*, void*, c10::Stream) override {
    return false;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    return {};
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static void free(void* context) {
    auto* data = static_cast<char*>(context);
    std::lock_guard lock(mutex());
    std::memset(data, kPattern, ranges()[data]);
    ranges().erase(data);
    std::free(data);
  }

  static std::map<char*, size_t>& ranges() {
    static auto* all = new std::map<char*, size_t>();
    return *all;
  }

  static std::mutex& mutex() {
    static auto* one = new std::mutex();
    return *one;
  }
};

}  // namespace late
