// Copies between devices and host memory: side streams, events, and the thread that submits an
// operation when its input has arrived in host memory. Any device with a guard in PyTorch works.
//
// Rules:
// 1. An input is ready when the stream that was current at the call has reached the call.
// 2. Loads are submitted in the order of the calls.
// 3. A device tensor and its host copy live until the last copy has happened, not only until it is
//    enqueued: the device's allocator may give freed memory to another stream at once.
// 4. Host copies in flight are bounded by kWindow, as long as operations end. If none ends for
//    kPatience, the next one starts all the same: ranks may call their groups in different orders,
//    and then operations wait for others that have not started.
// 5. Events are destroyed with their device current.
//
// Not here: what is copied (pieces.hpp), and the operations (submitter.hpp).
#pragma once

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace gradwire {

// True while this thread runs the end of an operation, and always on a stager's thread.
inline thread_local bool on_completion_thread = false;

// Whether `stream` records a graph. PyTorch 2.14 cannot tell for every device.
template <typename Guard>
auto is_capturing(const Guard& guard, const c10::Stream& stream, int)
    -> decltype(guard.isStreamCapturing(stream)) {
  return guard.isStreamCapturing(stream);
}

template <typename Guard>
bool is_capturing(const Guard&, const c10::Stream&, long) {
  return false;
}

// The streams of one device beside those of the user. On the host nothing runs on streams.
struct SideStreams {
  c10::Stream in;   // device to host
  c10::Stream out;  // host to device
};

// A point that a stream reaches. A point of the host is reached at once.
class Mark {
 public:
  Mark() = default;

  explicit Mark(const c10::Stream& stream) {
    if (stream.device().is_cpu()) return;
    event_.emplace(stream.device_type());
    event_->record(stream);
  }

  // The point at which the caller's current stream is now.
  static Mark here(const c10::Device& device) {
    return Mark(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  Mark(Mark&&) = default;
  Mark& operator=(Mark&&) = default;

  ~Mark() {
    if (!event_) return;
    c10::OptionalDeviceGuard guard(event_->device());
    event_.reset();
  }

  // Work that `stream` gets from now on waits for this point.
  void delay(const c10::Stream& stream) const {
    if (event_) event_->block(stream);
  }

  bool reached() const {
    return !event_ || event_->query();
  }

 private:
  std::optional<c10::Event> event_;
};

class Stager {
 public:
  using Clock = std::chrono::steady_clock;

  // Host copies in flight, in bytes.
  static constexpr size_t kWindow = size_t{128} << 20;
  static constexpr std::chrono::milliseconds kPatience{100};

  // An operation on its way to the core. Exactly one of `submit` and `fail` is called, once.
  struct Load {
    c10::Device device;
    std::shared_ptr<Mark> called;                    // where the input is ready
    size_t bytes;                                    // of host memory
    std::function<void()> copy;                      // enqueues copies; `in` is current
    std::function<void()> submit;                    // the copies have happened
    std::function<void(std::exception_ptr)> fail;
    Clock::time_point deadline;                      // of the input
  };

  Stager() : state_(std::make_shared<State>()) {}

  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  ~Stager() {
    // A forked child has the events and not their driver; the memory of both is left alone.
    if (getpid() != process_) {
      new std::shared_ptr<State>(state_);
    } else if (std::thread runner = state_->take_runner(); runner.joinable()) {
      runner.detach();
    }
  }

  void put(Load load) {
    ++state_->loads;
    if (state_->push([&] { state_->waiting.push_back(std::move(load)); })) return;
    load.fail(State::gone());
    --state_->loads;
  }

  // Whether operations wait for their inputs. Messages must not overtake them.
  bool has_loads() const {
    return state_->loads > 0;
  }

  // Keeps `held`, and counts `bytes` of host memory, until `mark` has happened; then calls `then`.
  void keep(Mark mark, std::shared_ptr<void> held, size_t bytes,
            std::vector<std::function<void()>> then) {
    const bool taken = state_->push([&] {
      state_->kept.push_back({std::move(mark), std::move(held), bytes, std::move(then)});
    });
    if (!taken) new std::shared_ptr<void>(std::move(held));
  }

  SideStreams streams(const c10::Device& device) {
    return state_->streams(device);
  }

  // Ends the thread within `grace`. Loads that are left fail; memory whose copies have not happened
  // by then is never freed. A stream that is stuck must not hang an exit: a thread that waits for
  // one is left alone.
  void stop(std::chrono::milliseconds grace) {
    std::unique_lock lock(state_->mutex);
    state_->stop_at = Clock::now() + grace;
    state_->stopping = true;
    state_->changed.notify_all();
    if (state_->runner.get_id() == std::this_thread::get_id()) return;
    const bool ended =
        state_->changed.wait_for(lock, 2 * grace, [this] { return !state_->running; });
    lock.unlock();
    std::thread runner = state_->take_runner();
    if (!runner.joinable()) return;
    if (ended) {
      runner.join();
    } else {
      runner.detach();
    }
  }

 private:
  struct Kept {
    Mark mark;
    std::shared_ptr<void> held;
    size_t bytes;
    std::vector<std::function<void()>> then;
  };

  struct Copying {
    Load load;
    Mark copied;
  };

  // Shared with the thread, which may outlive the stager.
  struct State : std::enable_shared_from_this<State> {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Load> waiting;
    std::deque<Copying> copying;  // used by the thread alone
    std::deque<Kept> kept;
    std::map<c10::Device, SideStreams, bool (*)(const c10::Device&, const c10::Device&)> sides{
        [](const c10::Device& one, const c10::Device& other) {
          return std::pair(one.type(), one.index()) < std::pair(other.type(), other.index());
        }};
    std::mutex sides_mutex;
    std::atomic<size_t> loads{0};
    size_t in_flight = 0;         // bytes; used by the thread alone
    Clock::time_point last_end{};  // of an operation; used by the thread alone
    bool running = false;
    std::atomic<bool> stopping{false};
    Clock::time_point stop_at{};
    std::thread runner;

    // The thread, to be joined or detached.
    std::thread take_runner() {
      std::lock_guard lock(mutex);
      return std::move(runner);
    }

    // Returns whether it was added: nothing is, once the thread has ended.
    template <typename Add>
    bool push(Add add) {
      std::lock_guard lock(mutex);
      if (stopping && !running) return false;
      add();
      if (!running) {
        running = true;
        runner = std::thread([self = shared_from_this()] { self->run(); });
      }
      changed.notify_all();
      return true;
    }

    static std::exception_ptr gone() {
      return std::make_exception_ptr(std::runtime_error(
          "gradwire: the process group has been shut down; call init_process_group again"));
    }

    SideStreams streams(const c10::Device& device) {
      std::lock_guard lock(sides_mutex);
      const auto found = sides.find(device);
      if (found != sides.end()) return found->second;
      const auto stream = [&device] {
        if (device.is_cpu()) return c10::Stream(c10::Stream::DEFAULT, device);
        return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
      };
      return sides.emplace(device, SideStreams{stream(), stream()}).first->second;
    }

    void run() {
      on_completion_thread = true;
      last_end = Clock::now();
      std::chrono::microseconds pause{0};
      while (!ended()) {
        const bool moved = release() | begin() | submit();
        pause = moved ? std::chrono::microseconds{0} : rest(pause);
      }
    }

    // Returns whether the thread should end; if so, fails the loads that are left.
    bool ended() {
      std::deque<Load> left;
      {
        std::lock_guard lock(mutex);
        if (!stopping) return false;
        left.swap(waiting);
      }
      for (auto& one : copying) left.push_back(std::move(one.load));
      copying.clear();
      for (auto& load : left) finish(load, gone());
      std::lock_guard lock(mutex);
      const bool late = Clock::now() >= stop_at;
      if (!kept.empty() && !late) return false;
      if (!kept.empty()) new std::deque<Kept>(std::move(kept));
      running = false;
      changed.notify_all();
      return true;
    }

    // Frees what has been copied; returns whether there was any.
    bool release() {
      std::vector<Kept> free;
      {
        std::lock_guard lock(mutex);
        for (auto& one : kept) {
          if (one.mark.reached()) free.push_back(std::move(one));
        }
        kept.erase(std::remove_if(kept.begin(), kept.end(),
                                  [](const Kept& one) { return one.held == nullptr; }),
                   kept.end());
      }
      for (auto& one : free) {
        in_flight -= std::min(in_flight, one.bytes);
        last_end = Clock::now();
        for (auto& then : one.then) then();
      }
      return !free.empty();
    }

    // Starts the copies of the next load; returns whether it did.
    bool begin() {
      std::optional<Load> next;
      {
        std::lock_guard lock(mutex);
        if (waiting.empty() || !has_room(waiting.front().bytes)) return false;
        next.emplace(std::move(waiting.front()));
        waiting.pop_front();
      }
      in_flight += next->bytes;
      last_end = Clock::now();
      try {
        const auto in = streams(next->device).in;
        const c10::StreamGuard guard(in);
        if (next->called) next->called->delay(in);
        next->copy();
        copying.push_back({std::move(*next), Mark(in)});
      } catch (...) {
        finish(*next, std::current_exception());
      }
      return true;
    }

    bool has_room(size_t bytes) const {
      return in_flight == 0 || in_flight + bytes <= kWindow ||
             Clock::now() - last_end > kPatience;
    }

    // Submits the first load whose copies have happened; returns whether it did.
    bool submit() {
      if (copying.empty()) return false;
      auto& first = copying.front();
      if (first.copied.reached()) {
        finish(first.load, nullptr);
      } else if (Clock::now() > first.load.deadline) {
        finish(first.load, std::make_exception_ptr(std::runtime_error(
                               "gradwire: Timed out while the operation waited for its input: the "
                               "stream that was current at the call has not reached it; look for "
                               "work on that stream that does not end, or set a longer timeout")));
        auto held = std::make_shared<Load>(std::move(first.load));  // the device may write to it
        std::lock_guard lock(mutex);
        kept.push_back({std::move(first.copied), std::move(held), 0, {}});
      } else {
        return false;
      }
      copying.pop_front();
      return true;
    }

    void finish(Load& load, std::exception_ptr error) {
      if (!error) {
        try {
          load.submit();
        } catch (...) {
          error = std::current_exception();
        }
      }
      if (error && !stopping) return fail_apart(load, error);
      if (error) load.fail(error);
      --loads;
    }

    // What follows a failure may wait for another operation, and so for this thread.
    void fail_apart(Load& load, const std::exception_ptr& error) {
      std::thread([fail = std::move(load.fail), error] {
        on_completion_thread = true;
        fail(error);
      }).detach();
      --loads;
    }

    // Waits for a change; without a pause at first, since events cannot wake a thread.
    std::chrono::microseconds rest(std::chrono::microseconds pause) {
      constexpr std::chrono::microseconds kSpin{50};
      constexpr std::chrono::microseconds kLongest{200};
      std::unique_lock lock(mutex);
      const bool polls = !copying.empty() || !kept.empty() || !waiting.empty() || stopping;
      if (!polls) {
        changed.wait(lock, [this] { return !waiting.empty() || !kept.empty() || stopping; });
        return std::chrono::microseconds{0};
      }
      lock.unlock();
      if (pause < kSpin) {
        std::this_thread::yield();
        return pause + std::chrono::microseconds{1};
      }
      std::this_thread::sleep_for(pause);
      return std::min(pause * 2, kLongest);
    }
  };

  std::shared_ptr<State> state_;
  const pid_t process_ = getpid();
};

}  // namespace gradwire
