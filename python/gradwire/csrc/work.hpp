// One submitted operation as PyTorch sees it: c10d::Work with a future that a pool thread fulfils.
// Not here: what the operation moves (backend.hpp).
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rank.hpp"

namespace gradwire {

using Tensors = std::vector<at::Tensor>;

class PendingWork : public c10d::Work {
 public:
  struct Plan {
    c10d::OpType type;
    const char* title;           // "gradwire:all_reduce", as the profiler shows it
    Tensors outputs;             // what the future holds
    Tensors staged;              // kept alive until the operation is complete
    std::function<void()> land;  // copies staged results to the caller's tensors; may be empty
  };

  PendingWork(int rank, Plan plan)
      : c10d::Work(rank, plan.type, plan.title, plan.outputs),
        plan_(std::move(plan)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  bool isCompleted() override {
    return future_->completed();
  }

  bool isSuccess() const override {
    return future_->completed() && !future_->hasError();
  }

  // Who waits with a ticket drives the core meanwhile: no change of threads lies between the last
  // packet and the return.
  void waits_by(const std::shared_ptr<Rank>& core, Rank::Ticket ticket) {
    core_ = core;
    ticket_ = std::move(ticket);
  }

  // Waits for the operation, then for the moment its future is set too.
  bool wait(std::chrono::milliseconds timeout) override {
    const auto core = core_.lock();
    if (core && !isCompleted()) {
      const std::chrono::milliseconds endless = std::chrono::hours(24 * 365);
      core->wait(ticket_, timeout == kNoTimeout ? endless : timeout);
    }
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

  // Waiters are released before the future's callbacks run: a callback may itself wait.
  void settle(std::exception_ptr error) {
    if (!error) error = landed();
    plan_.staged.clear();
    finish(error);
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

  Plan plan_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::weak_ptr<Rank> core_;
  Rank::Ticket ticket_;
};

// What travels through the C ABI as `user`: keeps work and rank alive until gw_done.
struct Ticket {
  c10::intrusive_ptr<PendingWork> work;
  std::shared_ptr<Rank> rank;

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
    ticket->rank->operation_ended();
  }
};

}  // namespace gradwire
