// What PyTorch's element types and reductions are to the core, and which pairs are refused.
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
  static constexpr const char* kNames[] = {"sum", "avg",  "product", "min",
                                           "max", "band", "bor",     "bxor"};
  return op <= c10d::ReduceOp::BXOR ? kNames[op] : "premul_sum or unused";
}

// A reduction in the core's terms: the tensor seen as elements that the core can reduce.
struct Reduction {
  at::Tensor view;
  uint32_t dtype;
  uint32_t reduce;
};

inline Reduction reduction_of_bools(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  const auto view = tensor.view(at::kByte);
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      return {view, GW_U8, GW_MAX};
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      return {view, GW_U8, GW_MIN};
    case c10d::ReduceOp::BXOR:
      return {view, GW_U8, GW_BXOR};
    default:
      TORCH_CHECK(false, "gradwire: ", reduction_name(op),
                  " of bool: use sum, product, min, max, band, bor or bxor");
  }
}

// Throws when the pair is not defined, with what is.
inline Reduction reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& reduce_op) {
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(reduce_op);
  TORCH_CHECK(op <= c10d::ReduceOp::BXOR, "gradwire: reduction ", reduction_name(op),
              ": use sum, avg, product, min, max, band, bor or bxor");
  if (tensor.scalar_type() == at::kBool) return reduction_of_bools(tensor, op);
  const bool linear = op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG;
  if (tensor.is_complex()) {
    TORCH_CHECK(linear, "gradwire: ", reduction_name(op), " of ", tensor.scalar_type(),
                ": complex tensors can be summed or averaged");
    return reduction_of(at::view_as_real(tensor), reduce_op);
  }
  const auto dtype = core_dtype(tensor.scalar_type());
  TORCH_CHECK(dtype, "gradwire: ", reduction_name(op), " of ", tensor.scalar_type(),
              ": convert to float16, bfloat16, float32, float64 or an integer first");
  const bool floating = tensor.is_floating_point();
  TORCH_CHECK(floating || op != c10d::ReduceOp::AVG, "gradwire: avg of ", tensor.scalar_type(),
              ": an average needs a floating-point or complex tensor");
  TORCH_CHECK(!floating || op < c10d::ReduceOp::BAND, "gradwire: ", reduction_name(op), " of ",
              tensor.scalar_type(), ": bitwise reductions need an integer or bool tensor");
  return {tensor, *dtype, static_cast<uint32_t>(op)};
}

// Element type for operations that only move bytes; any type can be moved.
inline uint32_t moved_dtype(const at::Tensor& tensor) {
  return core_dtype(tensor.scalar_type()).value_or(GW_U8);
}

}  // namespace gradwire
