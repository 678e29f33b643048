// This process's place in a job: owns the gw_rank, opens it, joins it, closes it once.
// Not here: operations (backend.hpp), and their completion (work.hpp).
#pragma once

#include <c10/util/Exception.h>
#include <gradwire.h>
#include <pybind11/gil.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "staging.hpp"

namespace gradwire {

// How long pending operations may still finish when their group or rank ends.
constexpr std::chrono::seconds kCloseGrace{3};
// How long a rank that is closed waits until others have received the data that it owes them.
constexpr std::chrono::seconds kLeavePatience{10};

class Rank {
 public:
  struct Place {
    uint32_t rank;
    uint32_t world;
    int32_t local;  // its number on its host; negative: unknown
  };

  // The credentials of a rank: a token, and certificate files; empty for none.
  struct Credentials {
    std::string token;
    std::string certificate;
    std::string key;
    std::string authority;
  };

  // Settings from the environment; empty texts mean the defaults.
  struct Settings {
    std::string job;    // path of a job.toml
    std::string trace;  // folder of the flight recorder
    std::string log;    // log level on standard error
  };

  // `job` is the key at which the ranks' store counts the groups of this job.
  Rank(const Settings& settings, Place place, const std::string& host, const Credentials& own,
       std::string job)
      : place_(place), job_(std::move(job)), process_(getpid()) {
    std::array<char, kErrorBytes> error{};
    const auto given = [](const std::string& text) {
      return text.empty() ? nullptr : text.c_str();
    };
    gw_opening opening{};
    opening.job_path = given(settings.job);
    opening.rank = place.rank;
    opening.world = place.world;
    opening.local_rank = place.local;
    opening.bind_host = host.c_str();
    opening.trace_folder = given(settings.trace);
    opening.log_level = given(settings.log);
    opening.credentials = {own.token.c_str(), given(own.certificate), given(own.key),
                           given(own.authority)};
    handle_ = gw_open(&opening, error.data(), error.size());
    if (handle_ == nullptr) throw std::runtime_error(error.data());
  }

  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  ~Rank() {
    close();
  }

  Place place() const {
    return place_;
  }

  const std::string& job() const {
    return job_;
  }

  std::string rendezvous() {
    return text(gw_rendezvous);
  }

  void join(const std::string& rendezvous, double timeout_seconds) {
    std::shared_lock lock(handle_mutex_);
    std::array<char, kErrorBytes> error{};
    if (gw_join(open_handle(), rendezvous.c_str(), timeout_seconds, error.data(), error.size())) {
      throw std::runtime_error(error.data());
    }
  }

  struct Forget {
    void operator()(gw_ticket* ticket) const {
      gw_ticket_free(ticket);
    }
  };
  using Ticket = std::unique_ptr<gw_ticket, Forget>;

  // Submits the operation; throws with the core's reason if it is refused.
  Ticket submit(const gw_operation& operation, gw_done done, void* user) {
    std::shared_lock lock(handle_mutex_);
    std::array<char, kErrorBytes> error{};
    auto* handle = open_handle();
    operation_started(operation.group);
    Ticket ticket(gw_submit(handle, &operation, done, user, error.data(), error.size()));
    if (!ticket) {
      operation_ended(operation.group);
      TORCH_CHECK_WITH(DistBackendError, false, error.data());
    }
    return ticket;
  }

  // Drives the core on this thread until the operation has ended, or another thread drives.
  void wait(const Ticket& ticket, std::chrono::duration<double> patience) {
    std::shared_lock lock(handle_mutex_);
    if (handle_ == nullptr) return;
    std::array<char, kErrorBytes> error{};
    if (gw_wait(handle_, ticket.get(), patience.count(), error.data(), error.size())) {
      throw std::runtime_error(error.data());
    }
  }

  void operation_ended(uint32_t group) {
    std::lock_guard lock(pending_mutex_);
    const auto of_group = pending_.find(group);
    if (--of_group->second > 0) return;
    pending_.erase(of_group);
    idle_.notify_all();
  }

  gw_counters counters() {
    std::shared_lock lock(handle_mutex_);
    gw_counters counters{};
    gw_counters_read(open_handle(), &counters);
    return counters;
  }

  double job_tolerance() {
    std::shared_lock lock(handle_mutex_);
    return gw_job_tolerance(open_handle());
  }

  // The tensor whose residual is taken, and the memory that receives it.
  struct Residual {
    uint64_t tensor_key;
    uint32_t dtype;
    void* values;
    size_t bytes;
  };

  // Whether there was a residual; it has moved to `values` then.
  bool take_residual(const Residual& residual) {
    std::shared_lock lock(handle_mutex_);
    std::array<char, kErrorBytes> error{};
    const int taken = gw_residual_take(open_handle(), residual.tensor_key, residual.dtype,
                                       residual.values, residual.bytes, error.data(), error.size());
    if (taken < 0) throw std::runtime_error(error.data());
    return taken > 0;
  }

  void scale_residual(uint64_t tensor_key, double factor) {
    std::shared_lock lock(handle_mutex_);
    std::array<char, kErrorBytes> error{};
    if (gw_residual_scale(open_handle(), tensor_key, factor, error.data(), error.size()))
      throw std::runtime_error(error.data());
  }

  // The next schedule: whether it is a trial or the one to keep, then chunk and credit.
  std::tuple<bool, uint64_t, uint64_t> tune(double step_seconds) {
    std::shared_lock lock(handle_mutex_);
    std::array<char, kErrorBytes> error{};
    gw_schedule schedule{};
    const int trying =
        gw_tune(open_handle(), step_seconds, &schedule, error.data(), error.size());
    if (trying < 0) throw std::runtime_error(error.data());
    return {trying > 0, schedule.chunk, schedule.credit};
  }

  void reschedule(uint64_t chunk, uint64_t credit) {
    std::shared_lock lock(handle_mutex_);
    std::array<char, kErrorBytes> error{};
    const gw_schedule schedule{chunk, credit};
    if (gw_reschedule(open_handle(), &schedule, error.data(), error.size()) < 0)
      throw std::runtime_error(error.data());
  }

  std::string job_json() {
    return text(gw_job_json);
  }

  // The flight recorder as JSON; empty before the rank has joined.
  std::string trace_json() {
    std::shared_lock lock(handle_mutex_);
    const std::unique_ptr<char, void (*)(char*)> text(gw_trace_json(open_handle()), gw_text_free);
    return text ? text.get() : "";
  }

  void abort(const std::string& reason) {
    std::shared_lock lock(handle_mutex_);
    if (handle_ != nullptr) gw_abort(handle_, reason.c_str());
  }

  bool is_open() {
    std::shared_lock lock(handle_mutex_);
    return handle_ != nullptr;
  }

  // Whether operations can begin: false once the job has ended on any rank, and in a fork.
  bool takes_operations() {
    std::shared_lock lock(handle_mutex_);
    return handle_ != nullptr && gw_takes_operations(handle_) != 0;
  }

  // Copies between devices and host memory, for all groups.
  Stager& stager() {
    return stager_;
  }

  // Throws in a fork, where no thread would ever end an operation that waits for its input.
  void refuse_fork() {
    if (getpid() == process_) return;
    std::array<char, kErrorBytes> error{};
    // Refused, with the reason. Without the lock, which a thread of the parent may have held.
    gw_end_group(handle_, 0, error.data(), error.size());
    TORCH_CHECK_WITH(DistBackendError, false, error.data());
  }

  // Counts an operation as pending before it is submitted.
  void operation_started(uint32_t group) {
    std::lock_guard lock(pending_mutex_);
    ++pending_[group];
  }

  // Ends a group here, at once: its pending operations fail, and no rank waits for it in vain.
  void end_group(uint32_t group) {
    if (getpid() != process_) return;
    std::shared_lock lock(handle_mutex_);
    if (handle_ != nullptr) gw_end_group(handle_, group, nullptr, 0);
  }

  // Waits until a group has no pending operation. A callback does not wait: it may be part of a
  // pending operation.
  void let_group_finish(uint32_t group) {
    if (getpid() != process_ || on_completion_thread || !is_open()) return;
    std::optional<pybind11::gil_scoped_release> no_gil;
    if (PyGILState_Check()) no_gil.emplace();
    std::unique_lock lock(pending_mutex_);
    idle_.wait_for(lock, kCloseGrace, [this, group] { return pending_.count(group) == 0; });
  }

  // Each group counts itself in and out, and the last one out closes the rank. If a callback drops
  // the last group, closing would join the callback's own thread, so the exit of Python closes.
  void group_created() {
    std::lock_guard lock(pending_mutex_);
    ++groups_;
  }

  void group_gone() {
    bool last = false;
    {
      std::lock_guard lock(pending_mutex_);
      last = --groups_ == 0;
    }
    if (last && !on_completion_thread) close();
  }

  // Idempotent. Releases the GIL while it waits: completions that still run may need it. Without
  // patience it waits neither for operations nor for other ranks, and aborts nothing: the others
  // learn that this rank has left.
  void close(std::chrono::duration<double> patience = kLeavePatience) {
    if (getpid() != process_) return;  // a forked child has the memory but not the threads
    if (!is_open()) return;
    std::optional<pybind11::gil_scoped_release> no_gil;
    if (PyGILState_Check()) no_gil.emplace();
    if (patience.count() > 0) {
      std::unique_lock lock(pending_mutex_);
      idle_.wait_for(lock, kCloseGrace, [this] { return pending_.empty(); });
      if (!pending_.empty()) {
        lock.unlock();
        abort("rank " + std::to_string(place_.rank) + " left with operations still pending");
      }
    }
    gw_rank* handle = nullptr;
    {
      std::unique_lock lock(handle_mutex_);
      std::swap(handle, handle_);
    }
    if (handle != nullptr) gw_close(handle, patience.count());
    stager_.stop(kCloseGrace);
  }

  // Closes several ranks at the same time: each waits for the other ranks of its own job, which may
  // close theirs in another order.
  static void close_all(const std::vector<std::shared_ptr<Rank>>& ranks, double patience) {
    std::vector<std::thread> closing;
    for (const auto& rank : ranks) {
      closing.emplace_back([rank, patience] {
        rank->close(std::chrono::duration<double>(patience));
      });
    }
    for (auto& thread : closing) thread.join();
  }

 private:
  static constexpr size_t kErrorBytes = 2048;

  gw_rank* open_handle() const {
    if (handle_ == nullptr) {
      throw std::runtime_error(
          "gradwire: the process group has been shut down; call init_process_group again");
    }
    return handle_;
  }

  std::string text(size_t (*read)(gw_rank*, char*, size_t)) {
    std::shared_lock lock(handle_mutex_);
    auto* handle = open_handle();
    std::string out(read(handle, nullptr, 0) + 1, '\0');
    read(handle, out.data(), out.size());
    out.pop_back();
    return out;
  }

  const Place place_;
  const std::string job_;
  const pid_t process_;
  gw_rank* handle_ = nullptr;
  std::shared_mutex handle_mutex_;  // held exclusively only to take the handle away
  std::mutex pending_mutex_;
  std::condition_variable idle_;
  std::map<uint32_t, size_t> pending_;  // how many operations have not ended, by group
  size_t groups_ = 0;
  Stager stager_;
};

}  // namespace gradwire
