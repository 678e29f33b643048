// Maps PyTorch's element types and reductions to the core's, and refuses undefined pairs.
#pragma once

#include <ATen/ATen.h>
#include <gradwire.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>

namespace gradwire {

inline std::optional<uint32_t> core_dtype(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return GW_U8;
    case at::kChar:
      return GW_I8;
    case at::kShort:
      return GW_I16;
    case at::kInt:
      return GW_I32;
    case at::kLong:
      return GW_I64;
    case at::kHalf:
      return GW_F16;
    case at::kBFloat16:
      return GW_BF16;
    case at::kFloat:
      return GW_F32;
    case at::kDouble:
      return GW_F64;
    case at::kUInt16:
      return GW_U16;
    case at::kUInt32:
      return GW_U32;
    case at::kUInt64:
      return GW_U64;
    default:
      return std::nullopt;
  }
}

inline const char* reduction_name(c10d::ReduceOp::RedOpType op) {
  static constexpr const char* kNames[] = {"sum",  "avg", "product", "min",       "max",
                                           "band", "bor", "bxor",    "premul_sum"};
  return op <= c10d::ReduceOp::PREMUL_SUM ? kNames[op] : "\"unused\"";
}

// A reduction in the core's terms. A complex element counts as its two parts, a bool as a byte.
struct Reduction {
  uint32_t dtype;
  uint32_t reduce;
};

inline Reduction reduction_of_bools(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      return {GW_U8, GW_MAX};
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      return {GW_U8, GW_MIN};
    case c10d::ReduceOp::BXOR:
      return {GW_U8, GW_BXOR};
    default:
      TORCH_CHECK(false, "gradwire: ", reduction_name(op),
                  " of bool: use sum, product, min, max, band, bor or bxor");
  }
}

// Throws if the pair is undefined, and names the defined ones. `scaled` applies the factor of
// premul_sum.
inline Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp& reduce_op) {
  auto op = static_cast<c10d::ReduceOp::RedOpType>(reduce_op);
  TORCH_CHECK(op <= c10d::ReduceOp::PREMUL_SUM, "gradwire: reduction ", reduction_name(op),
              ": use sum, avg, product, min, max, band, bor, bxor or premul_sum");
  if (type == at::kBool) return reduction_of_bools(op);
  const bool floating = at::isFloatingType(type) || at::isComplexType(type);
  const bool scales = op == c10d::ReduceOp::AVG || op == c10d::ReduceOp::PREMUL_SUM;
  TORCH_CHECK(floating || !scales, "gradwire: ", reduction_name(op), " of ", type,
              ": it needs a floating-point or complex tensor");
  const auto name = reduction_name(op);
  if (op == c10d::ReduceOp::PREMUL_SUM) op = c10d::ReduceOp::SUM;
  const bool linear = op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG;
  TORCH_CHECK(!at::isComplexType(type) || linear, "gradwire: ", name, " of ", type,
              ": complex tensors can be summed or averaged");
  const auto dtype = core_dtype(c10::toRealValueType(type));
  TORCH_CHECK(dtype, "gradwire: ", name, " of ", type,
              ": convert to float16, bfloat16, float32, float64 or an integer first");
  TORCH_CHECK(!floating || op < c10d::ReduceOp::BAND, "gradwire: ", name, " of ", type,
              ": bitwise reductions need an integer or bool tensor");
  return {*dtype, static_cast<uint32_t>(op)};
}

// Whether the ranks sum integers, and each then divides the sum. Lightning does so for Gloo, which
// it knows by name, and asks every other backend for the average.
inline bool divides_sum(at::ScalarType type, const c10d::ReduceOp& reduce_op) {
  return reduce_op.op_ == c10d::ReduceOp::AVG && at::isIntegralType(type, /*includeBool=*/false);
}

// The reduction that the core does for `reduce_op`.
inline Reduction summed_reduction(at::ScalarType type, const c10d::ReduceOp& reduce_op) {
  const bool sums = divides_sum(type, reduce_op);
  return reduction_of(type, sums ? c10d::ReduceOp(c10d::ReduceOp::SUM) : reduce_op);
}

// The rank's contribution to the sum: a scaled copy for premul_sum, else the tensor itself.
inline at::Tensor scaled(const at::Tensor& tensor, const c10d::ReduceOp& reduce_op) {
  if (reduce_op.op_ != c10d::ReduceOp::PREMUL_SUM) return tensor;
  const auto* by = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(reduce_op.supplement_.get());
  TORCH_CHECK(by != nullptr, "gradwire: premul_sum without a factor: make the reduction by ",
              "torch.distributed._make_nccl_premul_sum(factor)");
  if (!by->tensor_factor.defined()) return tensor * by->double_factor;
  return tensor * by->tensor_factor.to(tensor.options());
}

// Element type for operations that only move bytes; any type can be moved.
inline uint32_t moved_dtype(const at::Tensor& tensor) {
  return core_dtype(tensor.scalar_type()).value_or(GW_U8);
}

}  // namespace gradwire
