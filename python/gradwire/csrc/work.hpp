// Submitted operations as PyTorch sees them: c10d::Work with a future that a pool thread fulfils.
// Not here: the tensors of an operation (submitter.hpp and above).
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hooks.hpp"
#include "rank.hpp"

namespace gradwire {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The description of an operation before it is submitted.
struct Plan {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::string title;           // "gradwire:all_reduce", as the profiler shows it; empty: not shown
  Tensors outputs;             // the value of the future
  Tensors inputs;              // the profiler shows their shapes
  Tensors staged;              // kept alive until the operation is complete
  std::function<void()> land;  // copies staged results to the caller's tensors; may be empty
  std::shared_ptr<Hooks> hooks;
  uint64_t sequence = 0;
  std::chrono::milliseconds timeout{0};
};

// Work that is settled by the core (PendingWork), by its parts (JoinedWork), or by its last step.
class PlannedWork : public c10d::Work {
 public:
  PlannedWork(int rank, Plan plan)
      : c10d::Work(rank, plan.type, plan.title.empty() ? nullptr : plan.title.c_str(),
                   std::make_optional(plan.inputs)),
        plan_(std::move(plan)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    plan_.inputs.clear();
  }

  bool isCompleted() override {
    return future_->completed();
  }

  bool isSuccess() const override {
    return future_->completed() && !future_->hasError();
  }

  // Waits for the operation, and then until its future is set too.
  bool wait(std::chrono::milliseconds timeout) override {
    c10d::Work::wait(timeout);
    future_->wait();
    return true;
  }

  std::vector<at::Tensor> result() override {
    return plan_.outputs;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

  uint64_t getSequencenumber() const override {
    return plan_.sequence;
  }

  std::chrono::milliseconds getTimeout() const override {
    return plan_.timeout;
  }

#ifdef GRADWIRE_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override {
    return key_;
  }
#endif

  // Waiters are released before the future's callbacks run: a callback may itself wait.
  void settle(std::exception_ptr error) {
    if (!error) error = landed();
    plan_.staged.clear();
    finish(error);
    if (!error && plan_.hooks) plan_.hooks->completed(key_);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(at::IValue(plan_.outputs));
    }
  }

 private:
  std::exception_ptr landed() {
    if (!plan_.land) return nullptr;
    try {
      at::NoGradGuard no_grad;
      plan_.land();
      plan_.land = nullptr;
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  static uint64_t next_key() {
    static std::atomic<uint64_t> count{1};
    return count++;
  }

  Plan plan_;
  const uint64_t key_ = next_key();
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// One operation of the core.
class PendingWork : public PlannedWork {
 public:
  using PlannedWork::PlannedWork;

  // A thread that waits with a ticket drives the core meanwhile, so no thread switch lies between
  // the last packet and the return.
  void waits_by(const std::shared_ptr<Rank>& core, Rank::Ticket ticket) {
    core_ = core;
    ticket_ = std::move(ticket);
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const auto core = core_.lock();
    if (core && !isCompleted()) {
      const std::chrono::milliseconds endless = std::chrono::hours(24 * 365);
      core->wait(ticket_, timeout == kNoTimeout ? endless : timeout);
    }
    return PlannedWork::wait(timeout);
  }

  // Bytes of a receive's tensor that did not arrive, as offset and length; empty until it ends.
  std::vector<std::pair<uint64_t, uint64_t>> holes() const {
    if (!ticket_) return {};
    std::vector<gw_hole> found(gw_ticket_holes(ticket_.get(), nullptr, 0));
    gw_ticket_holes(ticket_.get(), found.data(), found.size());
    std::vector<std::pair<uint64_t, uint64_t>> out;
    for (const auto& hole : found) out.emplace_back(hole.offset_bytes, hole.bytes);
    return out;
  }

  // Position in the group of the rank that sent, for a receive from any rank.
  int sourceRank() const override {
    if (opType_ != c10d::OpType::RECVANYSOURCE) return c10d::Work::sourceRank();
    return ticket_ ? gw_ticket_source(ticket_.get()) : -1;
  }

 private:
  std::weak_ptr<Rank> core_;
  Rank::Ticket ticket_;
};

// Several operations that are complete when each of them is; fails with the first error.
class JoinedWork : public PlannedWork {
 public:
  static WorkPtr of(int rank, Plan plan, std::vector<WorkPtr> parts) {
    auto joined = c10::make_intrusive<JoinedWork>(rank, std::move(plan), parts);
    auto left = std::make_shared<Left>(parts.size());
    if (parts.empty()) joined->settle(nullptr);
    for (auto& part : parts) {
      part->getFuture()->addCallback([joined, left](c10::ivalue::Future& ended) {
        if (left->ended(ended.hasError() ? ended.exception_ptr() : nullptr)) {
          joined->settle(left->error);
        }
      });
    }
    return joined;
  }

  JoinedWork(int rank, Plan plan, std::vector<WorkPtr> parts)
      : PlannedWork(rank, std::move(plan)), parts_(std::move(parts)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    for (auto& part : parts_) part->wait(timeout);
    return PlannedWork::wait(timeout);
  }

 private:
  // Parts that have not ended, and the first error of those that have.
  struct Left {
    explicit Left(size_t parts) : count(parts) {}

    // Whether this was the last one.
    bool ended(const std::exception_ptr& with) {
      std::lock_guard lock(mutex);
      if (!error) error = with;
      return --count == 0;
    }

    std::mutex mutex;
    size_t count;
    std::exception_ptr error;
  };

  std::vector<WorkPtr> parts_;
};

// The `user` argument of the C ABI: keeps work and rank alive until gw_done.
struct Ticket {
  c10::intrusive_ptr<PendingWork> work;
  std::shared_ptr<Rank> rank;
  uint32_t group;

  static void done(void* user, int code, const char* message) {
    std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(user));
    std::exception_ptr error;
    if (code != 0) {
      const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
      error = std::make_exception_ptr(
          c10::DistBackendError(here, message ? message : "gradwire: the operation failed"));
    }
    on_completion_thread = true;
    ticket->work->settle(error);
    ticket->work.reset();
    on_completion_thread = false;
    ticket->rank->operation_ended(ticket->group);
  }
};

}  // namespace gradwire
