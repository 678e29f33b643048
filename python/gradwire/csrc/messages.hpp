// Messages between two ranks of a group, matched by tag in order.
#pragma once

#include "submitter.hpp"

namespace gradwire {

namespace detail {

inline void check_tag(int tag, const char* operation) {
  TORCH_CHECK(tag >= 0 && tag < Submitter::kTags, "gradwire: ", operation, " with tag ", tag,
              ": tags are 0 to ", Submitter::kTags - 1);
}

inline WorkPtr message(Submitter& submit, gw_operation operation, const at::Tensor& tensor,
                       Plan plan) {
  operation.dtype = moved_dtype(tensor);
  return submit.in_place(operation, tensor, std::move(plan));
}

inline uint32_t other_rank(const Submitter& submit, int rank, const char* operation) {
  TORCH_CHECK(rank != submit.rank(), "gradwire: ", operation, " with rank ", rank,
              ", which is this rank: name another one");
  return submit.peer(rank, operation);
}

}  // namespace detail

// The destination (GW_SEND) or source (GW_RECV) of a message.
struct Address {
  uint32_t kind;
  int peer;
  int tag;
};

// Tells the core about a message of floats that may lose some.
struct Loss {
  std::vector<gw_layer> layers;
  uint32_t layer_count;
  double tolerance;
  uint32_t step;
  uint64_t tensor_key;
  uint32_t holes;
};

// A message that tolerates loss: bytes lost within the tolerance keep their old values in the
// receiver's memory. `tensor` is contiguous; Work::holes lists these bytes.
inline WorkPtr lossy_message(Submitter& submit, const Address& address, const at::Tensor& tensor,
                             const Loss& loss) {
  const bool sends = address.kind == GW_SEND;
  const char* name = sends ? "send" : "recv";
  Tensors tensors{tensor};
  only_dense(tensors, name);
  TORCH_CHECK(tensor.is_cpu(), "gradwire: ", name, " that may lose, of a tensor on ",
              tensor.device(), ": give one in CPU memory (tensor.cpu())");
  TORCH_CHECK(tensor.is_contiguous(), "gradwire: a message that may lose must be contiguous");
  detail::check_tag(address.tag, name);
  const auto peer = detail::other_rank(submit, address.peer, name);
  auto operation = submit.message(address.kind, peer, address.tag);
  operation.tolerance = loss.tolerance > 0 ? loss.tolerance : -1.0;
  operation.step = loss.step;
  operation.layer_count = loss.layer_count;
  operation.layers = loss.layers.data();
  operation.layers_len = loss.layers.size();
  operation.tensor_key = loss.tensor_key;
  operation.holes = loss.holes;
  const auto type = sends ? c10d::OpType::SEND : c10d::OpType::RECV;
  return detail::message(submit, operation, tensor, submit.plan(type, name, tensors));
}

inline WorkPtr send(Submitter& submit, Tensors& tensors, int to, int tag) {
  auto& tensor = only_dense(tensors, "send");
  detail::check_tag(tag, "send");
  const auto peer = detail::other_rank(submit, to, "send");
  return detail::message(submit, submit.message(GW_SEND, peer, tag), tensor,
                         submit.plan(c10d::OpType::SEND, "send", tensors));
}

inline WorkPtr recv(Submitter& submit, Tensors& tensors, int from, int tag) {
  auto& tensor = only_dense(tensors, "recv");
  detail::check_tag(tag, "recv");
  const auto peer = detail::other_rank(submit, from, "recv");
  return detail::message(submit, submit.message(GW_RECV, peer, tag), tensor,
                         submit.plan(c10d::OpType::RECV, "recv", tensors));
}

// Receives from the rank that sends first; Work::sourceRank returns that rank.
inline WorkPtr recv_any(Submitter& submit, Tensors& tensors, int tag) {
  auto& tensor = only_dense(tensors, "recv");
  detail::check_tag(tag, "recv");
  TORCH_CHECK(submit.size() > 1,
              "gradwire: recv from any rank in a group of one rank: no other rank can send here");
  return detail::message(submit, submit.message(GW_RECV_ANY, 0, tag), tensor,
                         submit.plan(c10d::OpType::RECVANYSOURCE, "recvAnySource", tensors));
}

}  // namespace gradwire
