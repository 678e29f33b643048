// Checks arguments before any packet is sent. Each error names the given and the allowed value.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "work.hpp"

namespace gradwire {

// Requires memory of the host, or of a device whose streams can wait for a network.
inline void check_device(const at::Tensor& tensor, const char* operation) {
  const auto device = tensor.device();
  if (device.is_cpu()) return;
  TORCH_CHECK(!device.is_meta() && c10::impl::hasDeviceGuardImpl(device.type()), "gradwire: ",
              operation, " of a tensor on ", device,
              ": its memory cannot be copied here; give a tensor in CPU memory or on a device "
              "whose streams PyTorch knows, such as cuda or xpu");
  const c10::impl::VirtualGuardImpl guard(device.type());
  TORCH_CHECK(!is_capturing(guard, guard.getStream(device), 0), "gradwire: ", operation,
              " while the current stream of ", device,
              " is captured: a graph cannot contain a network; call it outside of the capture");
}

// Requires that two tensors of one call are on the same device.
inline void check_same_device(const at::Tensor& one, const at::Tensor& other,
                              const char* operation) {
  TORCH_CHECK(one.device() == other.device(), "gradwire: ", operation, " of tensors on ",
              one.device(), " and ", other.device(),
              ": all tensors of one call must be on one device");
}

// Requires a dense tensor. Submitter::in_place deals with strides.
inline void check_dense(const at::Tensor& tensor, const char* operation) {
  check_device(tensor, operation);
  TORCH_CHECK(tensor.layout() == at::kStrided, "gradwire: ", operation, " of a ", tensor.layout(),
              " tensor: give a dense one (tensor.to_dense()); only all_reduce takes sparse ones");
}

inline at::Tensor& only(Tensors& tensors, const char* operation) {
  TORCH_CHECK(tensors.size() == 1, "gradwire: ", operation, " of ", tensors.size(),
              " tensors: give one");
  return tensors[0];
}

inline at::Tensor& only_dense(Tensors& tensors, const char* operation) {
  auto& tensor = only(tensors, operation);
  check_dense(tensor, operation);
  return tensor;
}

// Requires one tensor per rank, all with the size and element type of `own`.
inline const Tensors& one_per_rank(const std::vector<Tensors>& lists, const at::Tensor& own,
                                   int ranks, const char* operation) {
  const auto count = lists.size() == 1 ? lists[0].size() : 0;
  TORCH_CHECK(count == static_cast<size_t>(ranks), "gradwire: ", operation, " with ", count,
              " tensors: give one for each of the ", ranks, " ranks");
  for (const auto& tensor : lists[0]) {
    check_dense(tensor, operation);
    check_same_device(tensor, own, operation);
    TORCH_CHECK(tensor.numel() == own.numel() && tensor.scalar_type() == own.scalar_type(),
                "gradwire: ", operation, " of ", own.numel(), " elements of ", own.scalar_type(),
                " with ", tensor.numel(), " of ", tensor.scalar_type(),
                ": all tensors must have the same size and element type");
  }
  return lists[0];
}

// Requires that `whole` has room for one `part` per rank.
inline void check_whole(const at::Tensor& whole, const at::Tensor& part, int ranks,
                        const char* operation) {
  check_dense(whole, operation);
  check_dense(part, operation);
  check_same_device(whole, part, operation);
  TORCH_CHECK(
      whole.numel() == part.numel() * ranks && whole.scalar_type() == part.scalar_type(),
      "gradwire: ", operation, " between ", part.numel(), " elements of ", part.scalar_type(),
      " and ", whole.numel(), " of ", whole.scalar_type(), ": with ", ranks,
      " ranks the larger must hold ", part.numel() * ranks, " elements of the same type");
}

// Requires as many outputs as inputs, and at least one.
inline void check_pairs(const Tensors& outputs, const Tensors& inputs, const char* operation) {
  TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(), "gradwire: ", operation, " of ",
              inputs.size(), " inputs into ", outputs.size(),
              " outputs: give one output for each input, and at least one");
}

inline void check_one_type(const Tensors& tensors, const char* operation) {
  for (const auto& tensor : tensors) {
    check_dense(tensor, operation);
    check_same_device(tensors[0], tensor, operation);
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), "gradwire: ", operation, " of ",
                tensors[0].scalar_type(), " and ", tensor.scalar_type(),
                ": all tensors must have one element type");
  }
}

}  // namespace gradwire
