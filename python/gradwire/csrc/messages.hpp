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

// From whichever rank sends first; Work::sourceRank tells which it was.
inline WorkPtr recv_any(Submitter& submit, Tensors& tensors, int tag) {
  auto& tensor = only_dense(tensors, "recv");
  detail::check_tag(tag, "recv");
  TORCH_CHECK(submit.size() > 1, "gradwire: recv from any rank in a group of one rank: nobody can "
                                 "send here");
  return detail::message(submit, submit.message(GW_RECV_ANY, 0, tag), tensor,
                         submit.plan(c10d::OpType::RECVANYSOURCE, "recvAnySource", tensors));
}

}  // namespace gradwire
