// Hooks that are called when an operation is complete. PyTorch's flight recorder uses them to tell
// a collective that ended from one that hangs.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

// PyTorch 2.14 has other hooks under C10D_BACKEND_HAS_HOOKS.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
#define GRADWIRE_COMPLETION_HOOKS
#endif

namespace gradwire {

class Hooks {
 public:
  using Completed = std::function<void(uint64_t key)>;

  void on_completion(int64_t id, Completed hook) {
    std::unique_lock lock(mutex_);
    completed_[id] = std::move(hook);
  }

  void forget_completion(int64_t id) {
    std::unique_lock lock(mutex_);
    completed_.erase(id);
  }

  // Reports an operation that succeeded. `key` is Work::getCompletionKey().
  void completed(uint64_t key) {
    std::shared_lock lock(mutex_);
    for (const auto& [id, hook] : completed_) hook(key);
  }

 private:
  std::shared_mutex mutex_;
  std::map<int64_t, Completed> completed_;
};

}  // namespace gradwire
