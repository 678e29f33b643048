// Submits the operations of one group to the core: numbers them, stages memory, makes their Work.
// Not here: the operations themselves (reductions.hpp, movements.hpp, messages.hpp).
#pragma once

#include <ATen/ATen.h>
#include <gradwire.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "checks.hpp"
#include "elements.hpp"
#include "work.hpp"

namespace gradwire {

using Milliseconds = std::chrono::milliseconds;

// The members of a group, and its number on the wire.
struct Group {
  uint32_t id;
  int rank;                     // this process's position in `ranks`
  std::vector<uint32_t> ranks;  // members, as ranks of the job
};

// The tensors that an operation writes and reads.
struct Buffers {
  at::Tensor output;
  at::Tensor input;
};

// A tensor's elements one after another: the tensor itself, or a copy.
inline at::Tensor dense_of(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous();
}

class Submitter : public std::enable_shared_from_this<Submitter> {
 public:
  static constexpr int kTags = 1 << 16;

  using Options = c10d::Backend::Options;

  Submitter(std::shared_ptr<Rank> core, Group group, c10::intrusive_ptr<Options> options)
      : core_(std::move(core)), group_(std::move(group)), options_(std::move(options)) {}

  Rank& core() const {
    return *core_;
  }

  const std::shared_ptr<Rank>& shared_core() const {
    return core_;
  }

  const Group& group() const {
    return group_;
  }

  Options& options() const {
    return *options_;
  }

  Hooks& hooks() const {
    return *hooks_;
  }

  int rank() const {
    return group_.rank;
  }

  int size() const {
    return static_cast<int>(group_.ranks.size());
  }

  // How many collectives have begun.
  uint64_t sequence() const {
    return sequence_;
  }

  Milliseconds timeout_of(Milliseconds asked) const {
    return asked == c10d::kUnsetTimeout ? options_->timeout : asked;
  }

  uint32_t peer(int64_t rank, const char* operation) const {
    TORCH_CHECK(rank >= 0 && rank < size(), "gradwire: ", operation, " with rank ", rank,
                ": the group has ranks 0 to ", size() - 1);
    return static_cast<uint32_t>(rank);
  }

  // A plan with the results `outputs`; the profiler shows the shapes of `inputs`.
  Plan plan(c10d::OpType type, const char* operation, Tensors outputs, Tensors inputs) const {
    Plan plan;
    plan.type = type;
    plan.title = options_->backend + ":" + operation;
    plan.outputs = std::move(outputs);
    plan.inputs = std::move(inputs);
    plan.hooks = hooks_;
    return plan;
  }

  Plan plan(c10d::OpType type, const char* operation, const Tensors& tensors) const {
    return plan(type, operation, tensors, tensors);
  }

  // Collectives are numbered in the order of calls, which is the same on every rank.
  gw_operation collective(uint32_t kind, Milliseconds timeout) {
    auto operation = operation_of(kind, timeout);
    operation.sequence = static_cast<uint32_t>(sequence_++);
    return operation;
  }

  // The core counts the messages of a pair and tag, and matches them in order.
  gw_operation message(uint32_t kind, uint32_t other, int tag) const {
    auto operation = operation_of(kind, c10d::kUnsetTimeout);
    operation.root = other;
    operation.tag = static_cast<uint32_t>(tag);
    return operation;
  }

  // Runs on the tensor itself when its elements lie one after another, else on a copy, which is
  // copied back. If `plan.staged` holds a tensor already, that one is used and copied back.
  // `plan.land`, if any, runs after the copy back.
  WorkPtr in_place(gw_operation operation, const at::Tensor& tensor, Plan plan) {
    const auto dense = dense_of(plan.staged.empty() ? tensor : plan.staged[0]);
    if (!dense.is_same(tensor) && lands(operation)) {
      plan.land = [tensor, dense, then = std::move(plan.land)] {
        tensor.copy_(dense);
        if (then) then();
      };
    }
    set_buffer(operation, dense);
    plan.staged = {dense};
    return start(operation, std::move(plan));
  }

  // Like in_place, from an input that is only read. `plan.land`, if any, runs after the copy back.
  // FSDP2 gathers in place: its input is this rank's part of the output.
  WorkPtr from_input(gw_operation operation, const Buffers& buffers, Plan plan) {
    auto input = dense_of(buffers.input);
    const auto dense = dense_of(buffers.output);
    const bool is_there = operation.kind == GW_ALL_GATHER && is_own_part(input, dense);
    if (!is_there && overlap(input, dense)) input = input.clone();
    if (!dense.is_same(buffers.output)) {
      plan.land = [output = buffers.output, dense, then = std::move(plan.land)] {
        output.copy_(dense);
        if (then) then();
      };
    }
    set_buffer(operation, dense);
    if (!is_there) set_input(operation, input);
    plan.staged = {dense, input};
    return start(operation, std::move(plan));
  }

  // In a group of one rank, and without bytes, a collective is complete at once.
  WorkPtr start(const gw_operation& operation, Plan plan) {
    plan.sequence = operation.sequence;
    plan.timeout = Milliseconds(static_cast<int64_t>(operation.timeout_seconds * 1e3));
    auto work = c10::make_intrusive<PendingWork>(rank(), std::move(plan));
    const bool empty = operation.bytes == 0 && operation.input_bytes == 0;
    if (size() == 1 || (empty && !meets(operation))) {
      if (operation.input_bytes > 0) {
        std::memcpy(operation.buffer, operation.input, operation.input_bytes);
      }
      work->settle(nullptr);
      return noted(work);
    }
    auto ticket = std::make_unique<Ticket>(Ticket{work, core_, group_.id});
    auto waited = core_->submit(operation, Ticket::done, ticket.get());
    ticket.release();
    work->waits_by(core_, std::move(waited));
    return noted(work);
  }

  // Operations started from here on become one Work.
  void start_coalescing() {
    std::lock_guard lock(coalesced_mutex_);
    TORCH_CHECK(!coalesced_, "gradwire: start of coalescing inside another one: end that first");
    coalesced_.emplace();
  }

  WorkPtr end_coalescing() {
    std::vector<WorkPtr> parts;
    {
      std::lock_guard lock(coalesced_mutex_);
      TORCH_CHECK(coalesced_, "gradwire: end of coalescing without a start");
      parts.swap(*coalesced_);
      coalesced_.reset();
    }
    return join(plan(c10d::OpType::COALESCED, "coalesced", {}), std::move(parts));
  }

  WorkPtr join(Plan plan, std::vector<WorkPtr> parts) const {
    plan.hooks = hooks_;
    plan.sequence = sequence_;
    plan.timeout = options_->timeout;
    return JoinedWork::of(rank(), std::move(plan), std::move(parts));
  }

 private:
  bool lands(const gw_operation& operation) const {
    const bool reduces_to_another =
        operation.kind == GW_REDUCE && operation.root != static_cast<uint32_t>(rank());
    return operation.kind != GW_SEND && !reduces_to_another;
  }

  // Whether ranks must meet although this one moves no bytes. In an all-to-all, others may move
  // some.
  static bool meets(const gw_operation& operation) {
    switch (operation.kind) {
      case GW_BARRIER:
      case GW_SEND:
      case GW_RECV:
      case GW_RECV_ANY:
      case GW_ALL_TO_ALL:
        return true;
      default:
        return false;
    }
  }

  bool is_own_part(const at::Tensor& part, const at::Tensor& whole) const {
    return bytes_of(part) == bytes_of(whole) + rank() * part.nbytes();
  }

  static bool overlap(const at::Tensor& one, const at::Tensor& other) {
    return bytes_of(one) < bytes_of(other) + other.nbytes() &&
           bytes_of(other) < bytes_of(one) + one.nbytes();
  }

  static const char* bytes_of(const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.data_ptr());
  }

  static void set_buffer(gw_operation& operation, const at::Tensor& tensor) {
    operation.buffer = tensor.data_ptr();
    operation.bytes = tensor.nbytes();
  }

  static void set_input(gw_operation& operation, const at::Tensor& tensor) {
    operation.input = tensor.data_ptr();
    operation.input_bytes = tensor.nbytes();
  }

  gw_operation operation_of(uint32_t kind, Milliseconds timeout) const {
    gw_operation operation{};
    operation.kind = kind;
    operation.group = group_.id;
    operation.ranks = group_.ranks.data();
    operation.ranks_len = group_.ranks.size();
    operation.tolerance = -1.0;
    operation.timeout_seconds = std::chrono::duration<double>(timeout_of(timeout)).count();
    return operation;
  }

  WorkPtr noted(const WorkPtr& work) {
    std::lock_guard lock(coalesced_mutex_);
    if (coalesced_) coalesced_->push_back(work);
    return work;
  }

  std::shared_ptr<Rank> core_;
  Group group_;
  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  std::atomic<uint64_t> sequence_{0};
  std::mutex coalesced_mutex_;
  std::optional<std::vector<WorkPtr>> coalesced_;
};

}  // namespace gradwire
