// What others asked to hear of: operations that are complete, and failures.
// PyTorch's flight recorder tells a collective that ended from one that hangs by these.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace gradwire {

class Hooks {
 public:
  using Completed = std::function<void(uint64_t key)>;
  using Failed = std::function<void()>;

  void on_completion(int64_t id, Completed hook) {
    std::unique_lock lock(mutex_);
    completed_[id] = std::move(hook);
  }

  void on_failure(int64_t id, Failed hook) {
    std::unique_lock lock(mutex_);
    failed_[id] = std::move(hook);
  }

  void forget_completion(int64_t id) {
    std::unique_lock lock(mutex_);
    completed_.erase(id);
  }

  void forget_failure(int64_t id) {
    std::unique_lock lock(mutex_);
    failed_.erase(id);
  }

  // An operation that ended well. `key` is Work::getCompletionKey().
  void completed(uint64_t key) {
    std::shared_lock lock(mutex_);
    for (const auto& [id, hook] : completed_) hook(key);
  }

  // An operation failed, or somebody aborts. A hook may be told more than once.
  void failed() {
    std::map<int64_t, Failed> hooks;
    {
      std::shared_lock lock(mutex_);
      hooks = failed_;  // outside the lock: a hook may take Python's lock, and unregister itself
    }
    for (const auto& [id, hook] : hooks) hook();
  }

 private:
  std::shared_mutex mutex_;
  std::map<int64_t, Completed> completed_;
  std::map<int64_t, Failed> failed_;
};

}  // namespace gradwire
