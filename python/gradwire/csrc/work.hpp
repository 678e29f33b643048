// Submitted operations as PyTorch sees them: c10d::Work with a future that a pool thread fulfils.
// Not here: the tensors of an operation (submitter.hpp and above).
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/cuda/StreamBlock.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hooks.hpp"
#include "rank.hpp"

namespace gradwire {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Where the results of an operation on devices land.
struct Landing {
  std::shared_ptr<Rank> core;  // whose stager copies
  std::vector<c10::Device> devices;
  std::shared_ptr<Mark> called;  // the outputs are not used on the device before this
  size_t bytes = 0;              // of host memory

  // The streams that must be current where results land; none for tensors of the host.
  std::vector<c10::Stream> streams() const {
    std::vector<c10::Stream> out;
    for (const auto& device : devices) out.push_back(core->stager().streams(device).out);
    return out;
  }
};

// The description of an operation before it is submitted.
struct Plan {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::string title;           // "gradwire:all_reduce", as the profiler shows it; empty: not shown
  Tensors outputs;             // the value of the future
  Tensors inputs;              // the profiler shows their shapes
  Tensors staged;              // kept alive until the operation is complete
  std::function<void()> land;  // copies staged results to the caller's tensors; may be empty
  std::optional<Landing> landing;  // for tensors of devices
  bool whole = false;              // never cut into pieces
  bool waits_on_stream = false;    // wait() blocks the current stream and not the caller
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
            c10::ListType::create(c10::TensorType::get()),
            plan_.landing ? plan_.landing->devices : std::vector<c10::Device>{})) {
    plan_.inputs.clear();
  }

  bool isCompleted() override {
    return future_->completed();
  }

  bool isSuccess() const override {
    return future_->completed() && !future_->hasError();
  }

  // Waits for the operation, and then until its future is set too. The stream that is current on
  // this thread then waits for results on a device.
  bool wait(std::chrono::milliseconds timeout) override {
    if (blocks_stream()) return true;
    c10d::Work::wait(timeout);
    future_->wait();
    return true;
  }

  // Lets the current stream wait for results that are being copied to a device.
  void synchronize() override {
    if (on_device() && future_->completed()) future_->wait();
  }

  // Lets the current stream wait for the operation, whose network part has not ended either. It is
  // released when the results have been copied, not when their copies are enqueued.
  void blockCurrentStream() override {
    if (!on_device()) return c10d::Work::blockCurrentStream();
    {
      std::lock_guard lock(landed_mutex_);
      if (!settled_) {
        const c10::DeviceGuard device(plan_.landing->devices[0]);
        std::shared_ptr<c10d::cuda::StreamBlock> block =
            c10d::cuda::StreamBlockRegistry()->Create("CUDA", plan_.timeout);
        TORCH_CHECK(block != nullptr, "gradwire: this PyTorch cannot block a stream of ",
                    plan_.landing->devices[0], ": wait on the host (stream_wait=False)");
        landed_.push_back([block] { block->abort(); });
        return;
      }
    }
    future_->wait();
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

  // An override where PyTorch asks for it: from 2.14 on.
  std::chrono::milliseconds getTimeout() const {
    return plan_.timeout;
  }

  // Where results land on devices; null for tensors of the host.
  const Landing* landing() const {
    return plan_.landing ? &*plan_.landing : nullptr;
  }

#ifdef GRADWIRE_COMPLETION_HOOKS
  uint64_t getCompletionKey() const override {
    return key_;
  }
#endif

  // Waiters are released before the future's callbacks run: a callback may itself wait.
  void settle(std::exception_ptr error) {
    // The future records its events on the streams that are current.
    const c10::MultiStreamGuard guard(plan_.landing ? plan_.landing->streams()
                                                    : std::vector<c10::Stream>{});
    if (!error) error = landed();
    let_go();
    finish(error);
    if (!error && plan_.hooks) plan_.hooks->completed(key_);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(at::IValue(plan_.outputs));
    }
  }

 protected:
  // Whether wait() has let the current stream wait instead of the caller.
  bool blocks_stream() {
    if (!plan_.waits_on_stream || !on_device() || isCompleted()) return false;
    blockCurrentStream();
    return true;
  }

 private:
  // What results need until they have landed.
  struct Held {
    std::function<void()> land;
    Tensors staged;
    Tensors outputs;
  };

  bool on_device() const {
    return plan_.landing && !plan_.landing->devices.empty();
  }

  std::exception_ptr landed() {
    if (!plan_.land) return nullptr;
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      at::NoGradGuard no_grad;
      if (plan_.landing && plan_.landing->called) {
        for (const auto& stream : plan_.landing->streams()) plan_.landing->called->delay(stream);
      }
      plan_.land();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  // Gives up what was kept for the operation: on devices when the copies have happened.
  void let_go() {
    if (!plan_.landing) {
      plan_.land = nullptr;
      plan_.staged.clear();
      return;
    }
    auto held = std::make_shared<Held>(Held{std::move(plan_.land), std::move(plan_.staged),
                                            plan_.outputs});
    plan_.land = nullptr;
    std::vector<std::function<void()>> then;
    {
      std::lock_guard lock(landed_mutex_);
      settled_ = true;
      then.swap(landed_);
    }
    const auto streams = plan_.landing->streams();
    auto mark = streams.empty() ? Mark() : Mark(streams[0]);
    plan_.landing->core->stager().keep(std::move(mark), std::move(held), plan_.landing->bytes,
                                       std::move(then));
  }

  static uint64_t next_key() {
    static std::atomic<uint64_t> count{1};
    return count++;
  }

  Plan plan_;
  std::mutex landed_mutex_;
  bool settled_ = false;                        // the copies of the results are enqueued
  std::vector<std::function<void()>> landed_;  // called when they have happened
  const uint64_t key_ = next_key();
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// One operation of the core.
class PendingWork : public PlannedWork {
 public:
  using PlannedWork::PlannedWork;

  // The operation waits for its input before it is submitted: see waits_by and ends_early.
  void waits_for_input() {
    waits_for_input_ = true;
  }

  // A thread that waits with a ticket drives the core meanwhile, so no thread switch lies between
  // the last packet and the return.
  void waits_by(const std::shared_ptr<Rank>& core, Rank::Ticket ticket) {
    std::lock_guard lock(submitted_mutex_);
    core_ = core;
    ticket_ = std::move(ticket);
    waits_for_input_ = false;
    submitted_.notify_all();
  }

  // The operation ended before it was submitted.
  void ends_early(std::exception_ptr error) {
    {
      std::lock_guard lock(submitted_mutex_);
      waits_for_input_ = false;
      submitted_.notify_all();
    }
    settle(error);
  }

  bool wait(std::chrono::milliseconds timeout) override {
    if (landing()) landing()->core->refuse_fork();
    if (blocks_stream()) return true;
    const std::chrono::milliseconds endless = std::chrono::hours(24 * 365);
    const auto patience = timeout == kNoTimeout ? endless : timeout;
    const auto core = submitted(patience);
    if (core && !isCompleted()) core->wait(ticket_, patience);
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
  // The core, once it has the operation; null if it never gets it, or not within `patience`.
  std::shared_ptr<Rank> submitted(std::chrono::milliseconds patience) {
    std::unique_lock lock(submitted_mutex_);
    submitted_.wait_for(lock, patience, [this] { return !waits_for_input_; });
    return waits_for_input_ ? nullptr : core_.lock();
  }

  std::mutex submitted_mutex_;
  std::condition_variable submitted_;
  bool waits_for_input_ = false;
  std::weak_ptr<Rank> core_;
  Rank::Ticket ticket_;
};

// Several operations that are complete when each of them is; fails with the first error.
class JoinedWork : public PlannedWork {
 public:
  static WorkPtr of(int rank, Plan plan, std::vector<WorkPtr> parts) {
    join_landings(plan, parts);
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
    if (blocks_stream()) return true;
    for (auto& part : parts_) part->wait(timeout);
    return PlannedWork::wait(timeout);
  }

 private:
  // The whole lands where its parts do. Without outputs of its own, it has theirs: the future then
  // knows for which devices it must wait.
  static void join_landings(Plan& plan, const std::vector<WorkPtr>& parts) {
    auto& landing = plan.landing;
    for (const auto& part : parts) {
      const auto* planned = dynamic_cast<const PlannedWork*>(part.get());
      const auto* found = planned == nullptr ? nullptr : planned->landing();
      if (found == nullptr) continue;
      if (!landing) landing.emplace(Landing{found->core, {}, nullptr, 0});
      for (const auto& device : found->devices) {
        auto& all = landing->devices;
        if (std::find(all.begin(), all.end(), device) == all.end()) all.push_back(device);
      }
    }
    if (!landing || !plan.outputs.empty()) return;
    for (const auto& part : parts) {
      for (const auto& tensor : part->result()) plan.outputs.push_back(tensor);
    }
  }

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
