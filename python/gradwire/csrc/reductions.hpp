// Operations that compute: all-reduce, reduce, reduce-scatter, of dense tensors.
// Not here: sparse tensors (sparse.hpp), which pairs of type and reduction exist (elements.hpp).
#pragma once

#include "submitter.hpp"

namespace gradwire {

// Facts about gradients that travel together, passed from a hook to the core.
struct Gradient {
  c10d::ReduceOp op;
  std::vector<gw_layer> layers;
  uint32_t layer_count;
  double tolerance;
  uint32_t step;
  uint64_t tensor_key;
  uint32_t codec;
  double codec_share;
};

namespace detail {

// The type of several operations at once; PyTorch before 2.14 lacks the exact one.
template <typename Type>
auto type_of_many_reductions(int) -> decltype(Type::REDUCE_SCATTER_TENSOR_COALESCED) {
  return Type::REDUCE_SCATTER_TENSOR_COALESCED;
}

template <typename Type>
Type type_of_many_reductions(long) {
  return Type::COALESCED;
}

// Draws a sequence number only after the reduction is known to exist, so that a refused call does
// not change the group.
inline gw_operation computing(Submitter& submit, uint32_t kind, const Reduction& reduction,
                              Milliseconds timeout) {
  auto operation = submit.collective(kind, timeout);
  operation.dtype = reduction.dtype;
  operation.reduce = reduction.reduce;
  return operation;
}

inline gw_operation tagged(Submitter& submit, uint32_t kind, const at::Tensor& tensor,
                           const Gradient& gradient) {
  const auto reduction = reduction_of(tensor.scalar_type(), gradient.op);
  auto operation = computing(submit, kind, reduction, c10d::kUnsetTimeout);
  operation.tolerance = gradient.tolerance > 0 ? gradient.tolerance : -1.0;
  operation.step = gradient.step;
  operation.layer_count = gradient.layer_count;
  operation.layers = gradient.layers.data();
  operation.layers_len = gradient.layers.size();
  operation.tensor_key = gradient.tensor_key;
  operation.codec = gradient.codec;
  operation.codec_share = gradient.codec_share;
  return operation;
}

// Divides a sum of integers by the number of ranks, towards zero; does nothing for other averages.
inline std::function<void()> division(const Submitter& submit, const at::Tensor& sum,
                                      const c10d::ReduceOp& reduce_op) {
  if (!divides_sum(sum.scalar_type(), reduce_op)) return nullptr;
  return [sum, ranks = submit.size()] { sum.copy_(at::div(sum, ranks, "trunc")); };
}

inline WorkPtr all_reduce_one(Submitter& submit, const at::Tensor& tensor,
                              const c10d::AllreduceOptions& options, Plan plan) {
  const auto reduction = summed_reduction(tensor.scalar_type(), options.reduceOp);
  plan.staged = {scaled(tensor, options.reduceOp)};
  plan.land = division(submit, tensor, options.reduceOp);
  auto operation = detail::computing(submit, GW_ALL_REDUCE, reduction, options.timeout);
  return submit.in_place(operation, tensor, std::move(plan));
}

inline WorkPtr reduce_scatter_one(Submitter& submit, const Buffers& buffers,
                                  const c10d::ReduceScatterOptions& options, Plan plan) {
  const auto reduction = summed_reduction(buffers.input.scalar_type(), options.reduceOp);
  const auto input = scaled(buffers.input, options.reduceOp);
  plan.land = division(submit, buffers.output, options.reduceOp);
  auto operation = detail::computing(submit, GW_REDUCE_SCATTER, reduction, options.timeout);
  return submit.from_input(operation, {buffers.output, input}, std::move(plan));
}

}  // namespace detail

inline WorkPtr all_reduce(Submitter& submit, Tensors& tensors,
                          const c10d::AllreduceOptions& options) {
  auto& tensor = only_dense(tensors, "all_reduce");
  return detail::all_reduce_one(submit, tensor, options,
                                submit.plan(c10d::OpType::ALLREDUCE, "all_reduce", tensors));
}

// One message for all tensors, which must have one element type.
inline WorkPtr all_reduce_coalesced(Submitter& submit, Tensors& tensors,
                                    const c10d::AllreduceOptions& options) {
  TORCH_CHECK(!tensors.empty(), "gradwire: all_reduce_coalesced of no tensor: give one or more");
  check_one_type(tensors, "all_reduce_coalesced");
  const auto reduction = summed_reduction(tensors[0].scalar_type(), options.reduceOp);
  Tensors flat;
  for (auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  auto joined = scaled(at::cat(flat), options.reduceOp);
  auto plan = submit.plan(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce", tensors);
  plan.land = [joined, tensors, divide = detail::division(submit, joined, options.reduceOp)] {
    if (divide) divide();
    int64_t at = 0;
    for (const auto& tensor : tensors) {
      tensor.copy_(joined.narrow(0, at, tensor.numel()).view_as(tensor));
      at += tensor.numel();
    }
  };
  const auto operation =
      detail::computing(submit, GW_ALL_REDUCE, reduction, options.timeout);
  return submit.in_place(operation, joined, std::move(plan));
}

// All-reduce of a gradient bucket, with the tolerance for missing segments.
inline WorkPtr all_reduce_gradient(Submitter& submit, const at::Tensor& tensor,
                                   const Gradient& gradient) {
  check_dense(tensor, "all_reduce of gradients");
  TORCH_CHECK(tensor.is_contiguous(), "gradwire: gradients must be one contiguous bucket");
  const auto operation = detail::tagged(submit, GW_ALL_REDUCE, tensor, gradient);
  return submit.in_place(operation, tensor,
                         submit.plan(c10d::OpType::ALLREDUCE, "all_reduce", {tensor}));
}

// Reduce-scatter of the gradients of a sharded module; the layers are those of the input.
inline WorkPtr reduce_scatter_gradient(Submitter& submit, const Buffers& buffers,
                                       const Gradient& gradient) {
  check_whole(buffers.input, buffers.output, submit.size(), "reduce_scatter of gradients");
  auto plan = submit.plan(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter",
                          {buffers.output}, {buffers.input});
  const auto operation =
      detail::tagged(submit, GW_REDUCE_SCATTER, buffers.input, gradient);
  return submit.from_input(operation, buffers, std::move(plan));
}

// The tensors of ranks other than the root stay as they are.
inline WorkPtr reduce(Submitter& submit, Tensors& tensors, const c10d::ReduceOptions& options) {
  auto& tensor = only_dense(tensors, "reduce");
  const auto reduction = summed_reduction(tensor.scalar_type(), options.reduceOp);
  const auto root = submit.peer(options.rootRank, "reduce");
  auto plan = submit.plan(c10d::OpType::REDUCE, "reduce", tensors);
  plan.staged = {scaled(tensor, options.reduceOp)};
  const bool at_root = submit.rank() == static_cast<int>(root);
  if (at_root) plan.land = detail::division(submit, tensor, options.reduceOp);
  auto operation = detail::computing(submit, GW_REDUCE, reduction, options.timeout);
  operation.root = root;
  return submit.in_place(operation, tensor, std::move(plan));
}

// From one input per rank.
inline WorkPtr reduce_scatter(Submitter& submit, Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ReduceScatterOptions& options) {
  auto& output = only_dense(outputs, "reduce_scatter");
  const auto& parts = one_per_rank(inputs, output, submit.size(), "reduce_scatter");
  Tensors flat;
  for (const auto& part : parts) flat.push_back(part.reshape({-1}));
  return detail::reduce_scatter_one(
      submit, {output, at::cat(flat)}, options,
      submit.plan(c10d::OpType::REDUCE_SCATTER, "reduce_scatter", outputs, parts));
}

// From one input that holds the parts of all ranks.
inline WorkPtr reduce_scatter_single(Submitter& submit, const Buffers& buffers,
                                     const c10d::ReduceScatterOptions& options) {
  check_whole(buffers.input, buffers.output, submit.size(), "reduce_scatter");
  auto plan = submit.plan(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter",
                          {buffers.output}, {buffers.input});
  return detail::reduce_scatter_one(submit, buffers, options, std::move(plan));
}

inline WorkPtr reduce_scatter_coalesced(Submitter& submit, const Tensors& outputs,
                                        const Tensors& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  check_pairs(outputs, inputs, "reduce_scatter_tensor_coalesced");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_whole(inputs[i], outputs[i], submit.size(), "reduce_scatter_tensor_coalesced");
    summed_reduction(inputs[i].scalar_type(), options.reduceOp);
  }
  auto plan = submit.plan(detail::type_of_many_reductions<c10d::OpType>(0), "reduce_scatter",
                          outputs, inputs);
  std::vector<WorkPtr> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Plan part;
    part.type = c10d::OpType::_REDUCE_SCATTER_BASE;
    parts.push_back(
        detail::reduce_scatter_one(submit, {outputs[i], inputs[i]}, options, std::move(part)));
  }
  return submit.join(std::move(plan), std::move(parts));
}

}  // namespace gradwire
