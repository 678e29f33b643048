// The c10d::Backend of one process group: turns PyTorch's calls into operations of the core.
// Not here: element types (elements.hpp), completion (work.hpp), who opens the rank (launch.py).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <cstring>
#include <string>

#include "elements.hpp"
#include "work.hpp"

namespace gradwire {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The members of a group and the number that names it on the wire.
struct Group {
  uint32_t id;
  int rank;                     // this process's position in `ranks`
  std::vector<uint32_t> ranks;  // members, as ranks of the job
};

// What a DDP hook knows about a bucket of gradients and the core wants to know.
struct Gradient {
  std::vector<gw_layer> layers;
  uint32_t layer_count;
  double tolerance;
  uint32_t step;
  uint64_t tensor_key;
};

class Backend : public c10d::Backend {
 public:
  static constexpr int kTags = 65536;  // tags of send and recv

  Backend(std::shared_ptr<Rank> rank, Group group, std::chrono::milliseconds timeout)
      : c10d::Backend(group.rank, static_cast<int>(group.ranks.size())),
        core_(std::move(rank)),
        group_(std::move(group)),
        options_(c10::make_intrusive<Options>("gradwire", timeout)) {
    options_->global_ranks_in_group.assign(group_.ranks.begin(), group_.ranks.end());
    core_->group_created();
    init();
  }

  ~Backend() override {
    shutdown();
  }

  const std::string getBackendName() const override {
    return "gradwire";
  }

  c10::intrusive_ptr<Options> getBackendOptions() override {
    return options_;
  }

  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
  }

  uint64_t getSequenceNumberForGroup() override {
    return sequence_;
  }

  void abort() override {
    core_->abort("rank " + std::to_string(core_->place().rank) + " called abort()");
  }

  void shutdown() override {
    if (!gone_.exchange(true)) core_->group_gone();
  }

  Rank& core() {
    return *core_;
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto& tensor = only(tensors, "all_reduce");
    return all_reduce({c10d::OpType::ALLREDUCE, "gradwire:all_reduce", tensors, {}, {}}, tensor,
                      options);
  }

  // One message for all tensors, which must have one element type.
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    TORCH_CHECK(!tensors.empty(), "gradwire: all_reduce_coalesced of no tensor: give one or more");
    Tensors flat;
    for (auto& tensor : tensors) {
      checked(tensor, "all_reduce_coalesced");
      TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(),
                  "gradwire: all_reduce_coalesced of ", tensors[0].scalar_type(), " and ",
                  tensor.scalar_type(), ": all tensors must have one element type");
      flat.push_back(tensor.reshape({-1}));
    }
    auto joined = at::cat(flat);
    auto scatter_back = [joined, tensors] {
      int64_t at = 0;
      for (const auto& tensor : tensors) {
        tensor.copy_(joined.narrow(0, at, tensor.numel()).view_as(tensor));
        at += tensor.numel();
      }
    };
    return all_reduce({c10d::OpType::ALLREDUCE_COALESCED, "gradwire:all_reduce", tensors, {},
                       std::move(scatter_back)},
                      joined, options);
  }

  // All-reduce of a gradient bucket: the mean, with the job's tolerance for missing segments.
  WorkPtr allreduce_gradient(at::Tensor& tensor, const Gradient& gradient) {
    checked(tensor, "all_reduce of gradients");
    TORCH_CHECK(tensor.is_contiguous(), "gradwire: gradients must be one contiguous bucket");
    const auto reduction = reduction_of(tensor, c10d::ReduceOp(c10d::ReduceOp::AVG));
    auto operation = collective(GW_ALL_REDUCE, c10d::kUnsetTimeout);
    operation.dtype = reduction.dtype;
    operation.reduce = reduction.reduce;
    set_buffer(operation, tensor);
    operation.tolerance = gradient.tolerance > 0 ? gradient.tolerance : -1.0;
    operation.step = gradient.step;
    operation.layer_count = gradient.layer_count;
    operation.layers = gradient.layers.data();
    operation.layers_len = gradient.layers.size();
    operation.tensor_key = gradient.tensor_key;
    return start(operation, {c10d::OpType::ALLREDUCE, "gradwire:all_reduce", {tensor}, {}, {}});
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    auto& tensor = only(tensors, "broadcast");
    auto operation = collective(GW_BROADCAST, options.timeout);
    operation.root = peer(options.rootRank, "broadcast");
    return move(operation, tensor,
                {c10d::OpType::BROADCAST, "gradwire:broadcast", tensors, {}, {}});
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    auto& input = only(inputs, "all_gather");
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == group_.ranks.size(),
                "gradwire: all_gather into ", outputs.empty() ? 0 : outputs[0].size(),
                " tensors: give one for each of the ", size_, " ranks");
    for (const auto& output : outputs[0]) same_elements(output, input, "all_gather");
    auto joined = at::empty({size_, input.numel()}, input.options());
    auto scatter_out = [joined, out = outputs[0]] {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i].copy_(joined.select(0, static_cast<int64_t>(i)).view_as(out[i]));
      }
    };
    return gather({c10d::OpType::ALLGATHER, "gradwire:all_gather", outputs[0], {},
                   std::move(scatter_out)},
                  {joined, input}, options.timeout);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    checked(input, "all_gather");
    sized(output, input, "all_gather");
    return gather({c10d::OpType::_ALLGATHER_BASE, "gradwire:all_gather", {output}, {}, {}},
                  {output, input}, options.timeout);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    auto& output = only(outputs, "reduce_scatter");
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == group_.ranks.size(),
                "gradwire: reduce_scatter of ", inputs.empty() ? 0 : inputs[0].size(),
                " tensors: give one for each of the ", size_, " ranks");
    Tensors flat;
    for (const auto& input : inputs[0]) {
      same_elements(output, input, "reduce_scatter");
      flat.push_back(input.reshape({-1}));
    }
    return scatter_sums({c10d::OpType::REDUCE_SCATTER, "gradwire:reduce_scatter", outputs, {}, {}},
                        {output, at::cat(flat)}, options);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    checked(output, "reduce_scatter");
    sized(input, output, "reduce_scatter");
    return scatter_sums(
        {c10d::OpType::_REDUCE_SCATTER_BASE, "gradwire:reduce_scatter", {output}, {}, {}},
        {output, input}, options);
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return start(collective(GW_BARRIER, options.timeout),
                 {c10d::OpType::BARRIER, "gradwire:barrier", {}, {}, {}});
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    auto& tensor = only(tensors, "send");
    return move(point_to_point(GW_SEND, to, tag), tensor,
                {c10d::OpType::SEND, "gradwire:send", tensors, {}, {}});
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    auto& tensor = only(tensors, "recv");
    return move(point_to_point(GW_RECV, from, tag), tensor,
                {c10d::OpType::RECV, "gradwire:recv", tensors, {}, {}});
  }

 private:
  using Plan = PendingWork::Plan;

  // Where results arrive and what they are made of.
  struct Buffers {
    at::Tensor output;
    at::Tensor input;
  };

  static const at::Tensor& checked(const at::Tensor& tensor, const char* operation) {
    TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided, "gradwire: ",
                operation, " of a ", tensor.layout(), " tensor on ", tensor.device(),
                ": gradwire moves dense tensors in CPU memory");
    return tensor;
  }

  static at::Tensor& only(Tensors& tensors, const char* operation) {
    TORCH_CHECK(tensors.size() == 1, "gradwire: ", operation, " of ", tensors.size(),
                " tensors: give one");
    checked(tensors[0], operation);
    return tensors[0];
  }

  static void same_elements(const at::Tensor& one, const at::Tensor& other, const char* operation) {
    checked(one, operation);
    checked(other, operation);
    TORCH_CHECK(one.numel() == other.numel() && one.scalar_type() == other.scalar_type(),
                "gradwire: ", operation, " of ", other.numel(), " elements of ",
                other.scalar_type(), " with ", one.numel(), " of ", one.scalar_type(),
                ": all tensors must have the same size and element type");
  }

  void sized(const at::Tensor& whole, const at::Tensor& part, const char* operation) const {
    checked(whole, operation);
    TORCH_CHECK(
        whole.numel() == part.numel() * size_ && whole.scalar_type() == part.scalar_type(),
        "gradwire: ", operation, " between ", part.numel(), " elements of ", part.scalar_type(),
        " and ", whole.numel(), " of ", whole.scalar_type(), ": with ", size_,
        " ranks the larger must hold ", part.numel() * size_, " elements of the same type");
  }

  uint32_t peer(int64_t rank, const char* operation) const {
    TORCH_CHECK(rank >= 0 && rank < size_, "gradwire: ", operation, " with rank ", rank,
                ": the group has ranks 0 to ", size_ - 1);
    return static_cast<uint32_t>(rank);
  }

  static void set_buffer(gw_operation& operation, const at::Tensor& tensor) {
    operation.buffer = tensor.data_ptr();
    operation.bytes = tensor.nbytes();
  }

  static void set_input(gw_operation& operation, const at::Tensor& tensor) {
    operation.input = tensor.data_ptr();
    operation.input_bytes = tensor.nbytes();
  }

  gw_operation operation_of(uint32_t kind, std::chrono::milliseconds timeout) const {
    gw_operation operation{};
    operation.kind = kind;
    operation.group = group_.id;
    operation.ranks = group_.ranks.data();
    operation.ranks_len = group_.ranks.size();
    operation.tolerance = -1.0;
    const auto limit = timeout == c10d::kUnsetTimeout ? options_->timeout : timeout;
    operation.timeout_seconds = std::chrono::duration<double>(limit).count();
    return operation;
  }

  // Collectives are numbered in the order of calls, which is the same on every rank.
  gw_operation collective(uint32_t kind, std::chrono::milliseconds timeout) {
    auto operation = operation_of(kind, timeout);
    operation.sequence = static_cast<uint32_t>(sequence_++);
    return operation;
  }

  // The core counts the messages of a pair and tag, and matches them in order.
  gw_operation point_to_point(uint32_t kind, int other, int tag) {
    const char* name = kind == GW_SEND ? "send" : "recv";
    TORCH_CHECK(tag >= 0 && tag < kTags, "gradwire: ", name, " with tag ", tag,
                ": tags are 0 to ", kTags - 1);
    auto operation = operation_of(kind, c10d::kUnsetTimeout);
    operation.root = peer(other, name);
    TORCH_CHECK(other != rank_, "gradwire: ", name, " with rank ", other,
                ", which is this rank: name another one");
    operation.tag = static_cast<uint32_t>(tag);
    return operation;
  }

  WorkPtr all_reduce(Plan plan, const at::Tensor& tensor, const c10d::AllreduceOptions& options) {
    const auto reduction = reduction_of(tensor, options.reduceOp);
    auto operation = collective(GW_ALL_REDUCE, options.timeout);
    operation.dtype = reduction.dtype;
    operation.reduce = reduction.reduce;
    return in_place(operation, reduction.view, std::move(plan));
  }

  WorkPtr move(gw_operation operation, const at::Tensor& tensor, Plan plan) {
    operation.dtype = moved_dtype(tensor);
    return in_place(operation, tensor, std::move(plan));
  }

  // Runs on the tensor itself when it is contiguous, else on a copy that is copied back.
  WorkPtr in_place(gw_operation operation, const at::Tensor& tensor, Plan plan) {
    const auto dense = tensor.contiguous();
    if (!dense.is_same(tensor) && operation.kind != GW_SEND) {
      plan.land = [tensor, dense] { tensor.copy_(dense); };
    }
    set_buffer(operation, dense);
    plan.staged.push_back(dense);
    return start(operation, std::move(plan));
  }

  WorkPtr gather(Plan plan, const Buffers& buffers, std::chrono::milliseconds timeout) {
    auto operation = collective(GW_ALL_GATHER, timeout);
    operation.dtype = moved_dtype(buffers.input);
    return from_input(operation, buffers, std::move(plan));
  }

  WorkPtr scatter_sums(Plan plan, const Buffers& buffers,
                       const c10d::ReduceScatterOptions& options) {
    const auto input = reduction_of(buffers.input, options.reduceOp);
    const auto output = reduction_of(buffers.output, options.reduceOp);
    auto operation = collective(GW_REDUCE_SCATTER, options.timeout);
    operation.dtype = input.dtype;
    operation.reduce = input.reduce;
    return from_input(operation, {output.view, input.view}, std::move(plan));
  }

  WorkPtr from_input(gw_operation operation, const Buffers& buffers, Plan plan) {
    const auto input = buffers.input.contiguous();
    const auto dense = buffers.output.contiguous();
    if (!dense.is_same(buffers.output)) {
      plan.land = [output = buffers.output, dense] { output.copy_(dense); };
    }
    set_buffer(operation, dense);
    set_input(operation, input);
    plan.staged = {dense, input};
    return start(operation, std::move(plan));
  }

  // A group of one rank, and a collective without bytes, are complete at once.
  WorkPtr start(const gw_operation& operation, Plan plan) {
    auto work = c10::make_intrusive<PendingWork>(rank_, std::move(plan));
    const bool waits = operation.kind == GW_BARRIER || operation.kind == GW_SEND ||
                       operation.kind == GW_RECV;
    const bool empty = operation.bytes == 0 && !waits;
    if (size_ == 1 || empty) {
      if (operation.input_bytes > 0) {
        std::memcpy(operation.buffer, operation.input, operation.input_bytes);
      }
      work->settle(nullptr);
      return work;
    }
    auto ticket = std::make_unique<Ticket>(Ticket{work, core_});
    auto waited = core_->submit(operation, Ticket::done, ticket.get());
    ticket.release();
    work->waits_by(core_, std::move(waited));
    return work;
  }

  std::shared_ptr<Rank> core_;
  Group group_;
  c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<bool> gone_{false};
};

}  // namespace gradwire
