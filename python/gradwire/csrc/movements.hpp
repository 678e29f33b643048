// Collectives that move elements without computing: broadcast, all-gather, gather, scatter,
// all-to-all. They take any element type.
// Not here: messages between two ranks (messages.hpp).
#pragma once

#include <algorithm>
#include <numeric>

#include "submitter.hpp"

namespace gradwire {

namespace detail {

// The type of several operations at once; PyTorch before 2.14 lacks the exact one.
template <typename Type>
auto type_of_many_gathers(int) -> decltype(Type::ALLGATHER_INTO_TENSOR_COALESCED) {
  return Type::ALLGATHER_INTO_TENSOR_COALESCED;
}

template <typename Type>
Type type_of_many_gathers(long) {
  return Type::ALLGATHER_COALESCED;
}

inline gw_operation moving(Submitter& submit, uint32_t kind, const at::Tensor& like,
                           Milliseconds timeout) {
  auto operation = submit.collective(kind, timeout);
  operation.dtype = moved_dtype(like);
  return operation;
}

// Allocates room for one tensor like `part` from each rank; row i is rank i's.
inline at::Tensor rows_of(const Submitter& submit, const at::Tensor& part) {
  return at::empty({submit.size(), part.numel()}, part.options());
}

inline std::function<void()> copy_rows_to(at::Tensor rows, Tensors outputs) {
  return [rows = std::move(rows), outputs = std::move(outputs)] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].copy_(rows.select(0, static_cast<int64_t>(i)).view_as(outputs[i]));
    }
  };
}

inline at::Tensor rows_from(const Tensors& tensors) {
  Tensors flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::stack(flat);
}

inline WorkPtr all_gather_one(Submitter& submit, const Buffers& buffers, Milliseconds timeout,
                              Plan plan) {
  const auto operation = moving(submit, GW_ALL_GATHER, buffers.input, timeout);
  return submit.from_input(operation, buffers, std::move(plan));
}

}  // namespace detail

inline WorkPtr broadcast(Submitter& submit, Tensors& tensors,
                         const c10d::BroadcastOptions& options) {
  auto& tensor = only_dense(tensors, "broadcast");
  const auto root = submit.peer(options.rootRank, "broadcast");
  auto operation = detail::moving(submit, GW_BROADCAST, tensor, options.timeout);
  operation.root = root;
  return submit.in_place(operation, tensor,
                         submit.plan(c10d::OpType::BROADCAST, "broadcast", tensors));
}

// Into one output per rank.
inline WorkPtr all_gather(Submitter& submit, std::vector<Tensors>& outputs, Tensors& inputs,
                          const c10d::AllgatherOptions& options) {
  auto& input = only_dense(inputs, "all_gather");
  const auto& out = one_per_rank(outputs, input, submit.size(), "all_gather");
  const auto rows = detail::rows_of(submit, input);
  auto plan = submit.plan(c10d::OpType::ALLGATHER, "all_gather", out, inputs);
  plan.land = detail::copy_rows_to(rows, out);
  return detail::all_gather_one(submit, {rows, input}, options.timeout, std::move(plan));
}

// Into one output that holds the inputs of all ranks.
inline WorkPtr all_gather_single(Submitter& submit, const Buffers& buffers,
                                 const c10d::AllgatherOptions& options) {
  check_whole(buffers.output, buffers.input, submit.size(), "all_gather");
  auto plan = submit.plan(c10d::OpType::_ALLGATHER_BASE, "all_gather", {buffers.output},
                          {buffers.input});
  return detail::all_gather_one(submit, buffers, options.timeout, std::move(plan));
}

// `outputs[rank][i]` becomes the `inputs[i]` of that rank.
inline WorkPtr all_gather_coalesced(Submitter& submit, std::vector<Tensors>& outputs,
                                    Tensors& inputs, const c10d::AllgatherOptions& options) {
  const char* name = "all_gather_coalesced";
  TORCH_CHECK(outputs.size() == static_cast<size_t>(submit.size()), "gradwire: ", name, " into ",
              outputs.size(), " lists: give one for each of the ", submit.size(), " ranks");
  std::vector<Tensors> by_input(inputs.size());
  Tensors all;
  for (const auto& list : outputs) {
    check_pairs(list, inputs, name);
    for (size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(list[i]);
    all.insert(all.end(), list.begin(), list.end());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_dense(inputs[i], name);
    one_per_rank({by_input[i]}, inputs[i], submit.size(), name);
  }
  auto plan = submit.plan(c10d::OpType::ALLGATHER_COALESCED, "all_gather", all, inputs);
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto rows = detail::rows_of(submit, inputs[i]);
    Plan part;
    part.land = detail::copy_rows_to(rows, by_input[i]);
    parts.push_back(
        detail::all_gather_one(submit, {rows, inputs[i]}, options.timeout, std::move(part)));
  }
  return submit.join(std::move(plan), std::move(parts));
}

// Like all_gather_single, for each pair of output and input.
inline WorkPtr all_gather_single_coalesced(Submitter& submit, const Tensors& outputs,
                                           const Tensors& inputs,
                                           const c10d::AllgatherOptions& options) {
  const char* name = "all_gather_into_tensor_coalesced";
  check_pairs(outputs, inputs, name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(outputs[i], inputs[i], submit.size(), name);
  }
  auto plan =
      submit.plan(detail::type_of_many_gathers<c10d::OpType>(0), "all_gather", outputs, inputs);
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    parts.push_back(
        detail::all_gather_one(submit, {outputs[i], inputs[i]}, options.timeout, Plan{}));
  }
  return submit.join(std::move(plan), std::move(parts));
}

// Into one output per rank, at the root; the other ranks give no outputs.
inline WorkPtr gather(Submitter& submit, std::vector<Tensors>& outputs, Tensors& inputs,
                      const c10d::GatherOptions& options) {
  auto& input = only_dense(inputs, "gather");
  const auto root = submit.peer(options.rootRank, "gather");
  const bool at_root = submit.rank() == static_cast<int>(root);
  TORCH_CHECK(at_root || outputs.empty(), "gradwire: gather with outputs on rank ", submit.rank(),
              ": only the root, rank ", root, ", has outputs");
  auto plan = submit.plan(c10d::OpType::GATHER, "gather", at_root ? outputs.at(0) : Tensors{},
                          inputs);
  at::Tensor rows = at::empty({0}, input.options());
  if (at_root) {
    const auto& out = one_per_rank(outputs, input, submit.size(), "gather");
    rows = detail::rows_of(submit, input);
    plan.land = detail::copy_rows_to(rows, out);
  }
  auto operation = detail::moving(submit, GW_GATHER, input, options.timeout);
  operation.root = root;
  return submit.from_input(operation, {rows, input}, std::move(plan));
}

// Into one output that holds the inputs of all ranks, at the root; else the output is not used.
inline WorkPtr gather_single(Submitter& submit, const Buffers& buffers,
                             const c10d::GatherOptions& options) {
  const auto root = submit.peer(options.rootRank, "gather");
  const bool at_root = submit.rank() == static_cast<int>(root);
  check_dense(buffers.input, "gather");
  if (at_root) check_whole(buffers.output, buffers.input, submit.size(), "gather");
  const auto output = at_root ? buffers.output : at::empty({0}, buffers.input.options());
  auto plan = submit.plan(c10d::OpType::GATHER, "gather", {output}, {buffers.input});
  auto operation = detail::moving(submit, GW_GATHER, buffers.input, options.timeout);
  operation.root = root;
  return submit.from_input(operation, {output, buffers.input}, std::move(plan));
}

// From one input per rank, at the root; the other ranks give no inputs.
inline WorkPtr scatter(Submitter& submit, Tensors& outputs, std::vector<Tensors>& inputs,
                       const c10d::ScatterOptions& options) {
  auto& output = only_dense(outputs, "scatter");
  const auto root = submit.peer(options.rootRank, "scatter");
  const bool at_root = submit.rank() == static_cast<int>(root);
  TORCH_CHECK(at_root || inputs.empty(), "gradwire: scatter with inputs on rank ", submit.rank(),
              ": only the root, rank ", root, ", has inputs");
  auto plan = submit.plan(c10d::OpType::SCATTER, "scatter", outputs);
  at::Tensor rows = at::empty({0}, output.options());
  if (at_root) {
    plan.inputs = one_per_rank(inputs, output, submit.size(), "scatter");
    rows = detail::rows_from(plan.inputs);
  }
  auto operation = detail::moving(submit, GW_SCATTER, output, options.timeout);
  operation.root = root;
  return submit.from_input(operation, {output, rows}, std::move(plan));
}

// The split of the first dimension among the ranks, for one side of an all-to-all.
struct Splits {
  const at::Tensor& tensor;
  const std::vector<int64_t>& rows;  // per rank; empty: all equal
  const char* side;                  // "input" or "output"
};

// Bytes for each rank.
inline std::vector<uint64_t> bytes_of(const Splits& splits, int ranks) {
  const auto& [tensor, rows, side] = splits;
  const int64_t length = tensor.dim() > 0 ? tensor.size(0) : tensor.numel();
  const uint64_t row = length > 0 ? tensor.nbytes() / static_cast<size_t>(length) : 0;
  if (rows.empty()) {
    TORCH_CHECK(length % ranks == 0, "gradwire: all_to_all of an ", side, " of ", length,
                " rows: without split sizes it must be a multiple of the ", ranks, " ranks");
    return std::vector<uint64_t>(ranks, row * static_cast<uint64_t>(length / ranks));
  }
  const auto sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const bool valid = std::none_of(rows.begin(), rows.end(), [](int64_t n) { return n < 0; });
  TORCH_CHECK(valid && rows.size() == static_cast<size_t>(ranks) && sum == length,
              "gradwire: all_to_all with ", side, " split sizes ", rows, " of ", length,
              " rows: give one size for each of the ", ranks, " ranks, ", length, " in total");
  std::vector<uint64_t> bytes;
  for (const auto count : rows) bytes.push_back(row * static_cast<uint64_t>(count));
  return bytes;
}

namespace detail {

inline WorkPtr all_to_all_bytes(Submitter& submit, const Buffers& buffers, gw_operation operation,
                                Plan plan) {
  if (submit.size() == 1) {
    TORCH_CHECK(buffers.output.nbytes() == buffers.input.nbytes(), "gradwire: all_to_all of ",
                buffers.input.nbytes(), " bytes into ", buffers.output.nbytes(),
                ": a group of one rank sends to itself, so both must be the same");
  }
  return submit.from_input(operation, buffers, std::move(plan));
}

}  // namespace detail

inline WorkPtr all_to_all_single(Submitter& submit, const Splits& output, const Splits& input,
                                 const c10d::AllToAllOptions& options) {
  check_one_type({output.tensor, input.tensor}, "all_to_all_single");
  const auto to = bytes_of(input, submit.size());
  const auto from = bytes_of(output, submit.size());
  auto plan = submit.plan(c10d::OpType::ALLTOALL_BASE, "all_to_all", {output.tensor},
                          {input.tensor});
  auto operation = detail::moving(submit, GW_ALL_TO_ALL, input.tensor, options.timeout);
  operation.input_splits = to.data();
  operation.output_splits = from.data();
  return detail::all_to_all_bytes(submit, {output.tensor, input.tensor}, operation,
                                  std::move(plan));
}

// Each rank sends `inputs[i]` to rank i and gets `outputs[i]` from it; sizes may all differ.
inline WorkPtr all_to_all(Submitter& submit, Tensors& outputs, Tensors& inputs,
                          const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<size_t>(submit.size());
  TORCH_CHECK(outputs.size() == ranks && inputs.size() == ranks, "gradwire: all_to_all of ",
              inputs.size(), " tensors into ", outputs.size(),
              ": give one of each for each of the ", ranks, " ranks");
  Tensors all(inputs);
  all.insert(all.end(), outputs.begin(), outputs.end());
  check_one_type(all, "all_to_all");
  Tensors flat;
  std::vector<int64_t> to;
  std::vector<int64_t> from;
  for (const auto& tensor : inputs) {
    flat.push_back(tensor.reshape({-1}));
    to.push_back(tensor.numel());
  }
  for (const auto& tensor : outputs) from.push_back(tensor.numel());
  const auto input = at::cat(flat);
  const auto output =
      at::empty({std::accumulate(from.begin(), from.end(), int64_t{0})}, input.options());
  const auto to_bytes = bytes_of({input, to, "input"}, submit.size());
  const auto from_bytes = bytes_of({output, from, "output"}, submit.size());
  auto plan = submit.plan(c10d::OpType::ALLTOALL, "all_to_all", outputs, inputs);
  plan.land = [output, outputs] {
    int64_t at = 0;
    for (const auto& tensor : outputs) {
      tensor.copy_(output.narrow(0, at, tensor.numel()).view_as(tensor));
      at += tensor.numel();
    }
  };
  auto operation = detail::moving(submit, GW_ALL_TO_ALL, input, options.timeout);
  operation.input_splits = to_bytes.data();
  operation.output_splits = from_bytes.data();
  return detail::all_to_all_bytes(submit, {output, input}, operation, std::move(plan));
}

}  // namespace gradwire
