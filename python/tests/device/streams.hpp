// Streams of the late device: each is a thread with a queue. Copies start after a random delay, so
// code that does not wait for one reads what was there before.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace late {

constexpr int kDevices = 2;
constexpr int kPool = 8;  // streams of a device that are handed out in turn

inline std::atomic<int> longest_delay_us{300};
inline std::atomic<uint64_t> seed{1};

class Queue {
 public:
  explicit Queue(uint64_t number) : random_(seed + number) {
    std::thread([this] { run(); }).detach();
  }

  void push(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++pushed_;
    changed_.notify_all();
  }

  // Like push, after a delay that is drawn on this stream.
  void push_late(std::function<void()> task) {
    push([this, task = std::move(task)] {
      const int longest = longest_delay_us;
      if (longest > 0) {
        std::uniform_int_distribution<int> delay(0, longest);
        std::this_thread::sleep_for(std::chrono::microseconds(delay(random_)));
      }
      task();
    });
  }

  bool idle() {
    std::lock_guard lock(mutex_);
    return done_ == pushed_;
  }

  // Waits for what has been pushed until now.
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, until = pushed_] { return done_ >= until; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t pushed_ = 0;
  uint64_t done_ = 0;
};

// All streams of all devices; never destroyed, as their threads run to the end of the process.
class Queues {
 public:
  static Queues& get() {
    static auto* all = new Queues();
    return *all;
  }

  Queue& at(int device, int64_t id) {
    std::lock_guard lock(mutex_);
    return *queues_[device].at(id);
  }

  int64_t add(int device) {
    std::lock_guard lock(mutex_);
    queues_[device].push_back(std::make_unique<Queue>(100 * device + queues_[device].size()));
    return static_cast<int64_t>(queues_[device].size()) - 1;
  }

  // The next stream of the pool.
  int64_t next(int device) {
    return 1 + turns_[device]++ % kPool;
  }

  std::vector<Queue*> of(int device) {
    std::lock_guard lock(mutex_);
    std::vector<Queue*> all;
    for (const auto& queue : queues_[device]) all.push_back(queue.get());
    return all;
  }

 private:
  Queues() {
    for (int device = 0; device < kDevices; ++device) {
      for (int i = 0; i <= kPool; ++i) {
        queues_[device].push_back(std::make_unique<Queue>(100 * device + i));
      }
    }
  }

  std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<Queue>>, kDevices> queues_;
  std::array<std::atomic<int64_t>, kDevices> turns_{};
};

inline thread_local c10::DeviceIndex device_of_thread = 0;
inline thread_local std::array<int64_t, kDevices> stream_of_thread{};

inline c10::DeviceIndex current_device() {
  return device_of_thread;
}

inline c10::Stream stream_of(int64_t id, c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), id);
}

inline c10::Stream current_stream(c10::DeviceIndex device) {
  const auto index = device < 0 ? current_device() : device;
  return stream_of(stream_of_thread[index], index);
}

inline Queue& queue_of(const c10::Stream& stream) {
  return Queues::get().at(stream.device_index(), stream.id());
}

// A point that may be recorded again; a wait is for the last record before it.
class Event {
 public:
  void record(Queue& queue) {
    const auto version = ++state_->recorded;
    queue.push([state = state_, version] {
      std::lock_guard lock(state->mutex);
      state->happened = std::max(state->happened, version);
      state->changed.notify_all();
    });
  }

  void delay(Queue& queue) const {
    queue.push([state = state_, version = state_->recorded.load()] { state->await(version); });
  }

  bool query() const {
    std::lock_guard lock(state_->mutex);
    return state_->happened >= state_->recorded;
  }

  void synchronize() const {
    state_->await(state_->recorded);
  }

 private:
  struct State {
    void await(uint64_t version) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this, version] { return happened >= version; });
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<uint64_t> recorded{0};
    uint64_t happened = 0;
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace late
