// Submits the operations of one group to the core: numbers them, stages memory, makes their Work.
// Not here: the operations themselves (reductions.hpp, movements.hpp, messages.hpp).
#pragma once

#include <ATen/ATen.h>
#include <gradwire.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checks.hpp"
#include "elements.hpp"
#include "pieces.hpp"
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

// How a group treats tensors of devices.
struct Staging {
  bool stream_wait = false;  // wait() blocks the current stream and not the caller
  bool of_host = false;      // tensors of the host take the way of those of devices; for tests
};

// A tensor's elements one after another: the tensor itself, or a copy.
inline at::Tensor dense_of(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous();
}

class Submitter : public std::enable_shared_from_this<Submitter> {
 public:
  static constexpr int kTags = 1 << 16;

  using Options = c10d::Backend::Options;

  Submitter(std::shared_ptr<Rank> core, Group group, c10::intrusive_ptr<Options> options,
            Staging staging)
      : core_(std::move(core)),
        group_(std::move(group)),
        options_(std::move(options)),
        staging_(staging) {}

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

  const Staging& staging() const {
    return staging_;
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
    if (is_staged(operation, dense)) return stage(operation, {dense, {}}, std::move(plan));
    set_buffer(operation, dense);
    plan.staged = {dense};
    return start(operation, std::move(plan));
  }

  // Like in_place, from an input that is only read. `plan.land`, if any, runs after the copy back.
  // FSDP2 gathers in place: its input is this rank's part of the output.
  WorkPtr from_input(gw_operation operation, const Buffers& buffers, Plan plan) {
    auto input = dense_of(buffers.input);
    const auto dense = dense_of(buffers.output);
    if (!dense.is_same(buffers.output)) {
      plan.land = [output = buffers.output, dense, then = std::move(plan.land)] {
        output.copy_(dense);
        if (then) then();
      };
    }
    if (is_staged(operation, dense)) return stage(operation, {dense, input}, std::move(plan));
    const bool is_there = operation.kind == GW_ALL_GATHER && is_own_part(input, dense);
    if (!is_there && overlap(input, dense)) input = input.clone();
    set_buffer(operation, dense);
    if (!is_there) set_input(operation, input);
    plan.staged = {dense, input};
    return start(operation, std::move(plan));
  }

  WorkPtr start(const gw_operation& operation, Plan plan) {
    const auto work = work_of(operation, std::move(plan));
    const bool is_behind = operation.kind == GW_SEND && core_->stager().has_loads();
    if (is_behind) {
      const auto later = std::make_shared<LaterOperation>(operation);
      queue(later, work, {c10::Device(at::kCPU), nullptr, 0, [] {}, {}, {}, {}});
    } else {
      submit(operation, work);
    }
    return noted(work);
  }

  // The places of the pieces in which a tensor with a key was sent; none if it was sent whole.
  std::vector<PiecePlace> pieces_of(uint64_t tensor_key) const {
    std::lock_guard lock(cut_mutex_);
    const auto found = cut_.find(tensor_key);
    return found == cut_.end() ? std::vector<PiecePlace>{} : found->second;
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
  // A message that may lose keeps old values in the receiver's own memory.
  bool is_staged(const gw_operation& operation, const at::Tensor& tensor) const {
    const bool keeps_old = !is_collective(operation) && operation.tolerance >= 0;
    return !tensor.is_cpu() || (staging_.of_host && !keeps_old);
  }

  c10::intrusive_ptr<PendingWork> work_of(const gw_operation& operation, Plan plan) const {
    plan.sequence = operation.sequence;
    plan.timeout = Milliseconds(static_cast<int64_t>(operation.timeout_seconds * 1e3));
    return c10::make_intrusive<PendingWork>(rank(), std::move(plan));
  }

  // In a group of one rank, and without bytes, a collective is complete at once.
  void submit(const gw_operation& operation, const c10::intrusive_ptr<PendingWork>& work) {
    const bool empty = operation.bytes == 0 && operation.input_bytes == 0;
    if (size() == 1 || (empty && !meets(operation))) {
      if (operation.input_bytes > 0) {
        std::memcpy(operation.buffer, operation.input, operation.input_bytes);
      }
      work->ends_early(nullptr);
      return;
    }
    auto ticket = std::make_unique<Ticket>(Ticket{work, core_, group_.id});
    auto waited = core_->submit(operation, Ticket::done, ticket.get());
    ticket.release();
    work->waits_by(core_, std::move(waited));
  }

  // Submits once the copies of `load` have happened, and everything that was queued before.
  void queue(const std::shared_ptr<LaterOperation>& later,
             const c10::intrusive_ptr<PendingWork>& work, Stager::Load load) {
    const auto self = shared_from_this();
    core_->refuse_fork();
    core_->operation_started(group_.id);
    work->waits_for_input();
    load.submit = [self, later, work] {
      self->submit(later->operation, work);
      self->core_->operation_ended(self->group_.id);
    };
    load.fail = [self, work](std::exception_ptr error) {
      work->ends_early(error);
      self->core_->operation_ended(self->group_.id);
    };
    load.deadline = Stager::Clock::now() + work->getTimeout();
    core_->stager().put(std::move(load));
  }

  // Runs on host memory, by pieces; the results go back to `device`, and then `plan.land` runs.
  WorkPtr stage(const gw_operation& operation, const Buffers& device, Plan plan) {
    const auto place = device.output.device();
    if (size() == 1 || (is_empty(device) && !meets(operation))) {
      return stage_alone(operation, device, std::move(plan));
    }
    const auto sides = Sides::of(operation, device.output, device.input, rank());
    const auto pieces = plan.whole ? std::vector<Columns>{Columns{}} : cut(operation, sides);
    Landing landing{core_, {}, std::make_shared<Mark>(Mark::here(place)), 0};
    if (!place.is_cpu()) landing.devices = {place};
    plan.waits_on_stream = staging_.stream_wait;
    if (pieces.size() == 1) {
      const auto piece = std::make_shared<Piece>(operation, sides, pieces[0], 0);
      return noted(stage(piece, place, std::move(plan), landing));
    }
    note_cut(operation.tensor_key, sides, pieces);
    std::vector<WorkPtr> parts;
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto piece = std::make_shared<Piece>(operation, sides, pieces[i], i);
      if (i > 0) piece->operation.sequence = static_cast<uint32_t>(sequence_++);
      Plan part;
      part.type = plan.type;
      parts.push_back(stage(piece, place, std::move(part), landing));
    }
    landing.bytes = 0;
    plan.landing = std::move(landing);
    return noted(join(std::move(plan), std::move(parts)));
  }

  // Complete at once, without the host: in a group of one rank, and without elements.
  WorkPtr stage_alone(const gw_operation& operation, const Buffers& device, Plan plan) {
    const auto place = device.output.device();
    plan.landing = Landing{core_, {}, std::make_shared<Mark>(Mark::here(place)), 0};
    if (!place.is_cpu()) plan.landing->devices = {place};
    plan.land = [device, then = std::move(plan.land)] {
      if (!is_empty({device.input, {}})) device.output.view({-1}).copy_(device.input.view({-1}));
      if (then) then();
    };
    const auto work = work_of(operation, std::move(plan));
    work->settle(nullptr);
    return noted(work);
  }

  static bool is_empty(const Buffers& buffers) {
    const auto has_none = [](const at::Tensor& tensor) {
      return !tensor.defined() || tensor.numel() == 0;
    };
    return has_none(buffers.output) && has_none(buffers.input);
  }

  WorkPtr stage(const std::shared_ptr<Piece>& piece, const c10::Device& place, Plan plan,
                Landing landing) {
    const auto kind = piece->operation.kind;
    const bool receives = kind == GW_RECV || kind == GW_RECV_ANY;
    landing.bytes = receives ? 0 : piece->bytes();
    plan.land = [piece, then = std::move(plan.land)] {
      piece->copy_to_device();
      if (then) then();
    };
    const auto called = landing.called;
    plan.landing = std::move(landing);
    const auto work = work_of(piece->operation, std::move(plan));
    const auto copy = [piece] {
      at::AutoDispatchBelowADInplaceOrView guard;
      piece->copy_to_host();
    };
    if (receives) {  // it has no input, and must not be overtaken by a receive on the host
      copy();
      submit(piece->operation, work);
      return work;
    }
    queue(piece, work, {place, called, piece->bytes(), copy, {}, {}, {}});
    return work;
  }

  // A gradient's residual has the length of its input, where that has a side of its own.
  void note_cut(uint64_t tensor_key, const Sides& sides, const std::vector<Columns>& pieces) {
    if (tensor_key == 0) return;
    const auto& side = sides.input.empty() ? sides.output : sides.input;
    std::vector<PiecePlace> places;
    for (const auto& columns : pieces) {
      places.push_back({side.rows, side.columns(), columns.start, columns.count_of(side)});
    }
    std::lock_guard lock(cut_mutex_);
    cut_[tensor_key] = std::move(places);
  }

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
  const Staging staging_;
  mutable std::mutex cut_mutex_;
  std::map<uint64_t, std::vector<PiecePlace>> cut_;  // of tensors with a key that are cut
  std::mutex coalesced_mutex_;
  std::optional<std::vector<WorkPtr>> coalesced_;
};

}  // namespace gradwire
